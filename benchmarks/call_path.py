"""Count what one request passes through in the entry class: files, functions, calls and frames.

    python -m benchmarks.call_path

Tiny models are served in this process, as TorchServe's worker does it. Each request is sent twice
before it is counted with `sys.setprofile`. The CPU time of a request in `handle` is measured beside
the CPU time of its forward passes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Annotated, Any

import torch
import ts
import typer
from rich.console import Console
from rich.table import Table
from transformers import Qwen2Config, Qwen2ForCausalLM
from ts.context import Context, RequestProcessor
from ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl

from benchmarks.models import bert_base
from hf_serve import handlers
from hf_serve.demo_models.minilm import load_tokenizer
from hf_serve.handlers.transformers_handler import TransformersHandler

HANDLERS = Path(handlers.__file__).parent
METRICS = Path(ts.__file__).parent / "configs" / "metrics.yaml"
CHAT_TEMPLATE = "{% for each in messages %}{{ each.role }}: {{ each.content }} {% endfor %}"
TEXT = "A fine film with a great cast."
BATCHES = (1, 16)
REPEATS = 300
COLUMNS = (
    ("files", "functions", "calls", "frames", "objects"),
    ("handle_us", "forward_us", "rest_us"),
)

Row = tuple[dict[str, Any], dict[str, Any]]
JSON = {"Content-Type": "application/json"}
CLASSIFICATION: Row = ({"body": {"inputs": TEXT}}, JSON)
EXPLANATION: Row = ({"body": {"inputs": TEXT}}, {**JSON, "explain": "True"})
CHAT: Row = (
    {"body": {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 4}},
    {**JSON, "url_path": "v1/chat/completions"},
)


@dataclass
class CallPath:
    """What the kit does for one request.

    Attributes:
        functions: how often each function of the kit was called; a comprehension is a function.
        frames: the largest number of frames of the kit on the stack.
        objects: how many instances of each class of the kit were initialized.
    """

    functions: Counter[CodeType] = field(default_factory=Counter)
    frames: int = 0
    objects: Counter[str] = field(default_factory=Counter)

    @property
    def files(self) -> set[str]:
        """The files of the functions."""
        return {str(Path(code.co_filename).relative_to(HANDLERS)) for code in self.functions}

    def counts(self) -> dict[str, int]:
        """Return the numbers of files, functions, calls, frames and objects."""
        return {
            "files": len(self.files),
            "functions": len(self.functions),
            "calls": self.functions.total(),
            "frames": self.frames,
            "objects": self.objects.total(),
        }

    def __str__(self) -> str:
        """Every function with its calls, by file, and the objects."""
        functions = sorted(
            f"{Path(code.co_filename).relative_to(HANDLERS)} {code.co_qualname}: {calls}"
            for code, calls in self.functions.items()
        )
        return "\n".join([*functions, f"objects: {dict(self.objects)}"])


def call_path(function: Callable[[], object]) -> CallPath:
    """Call a function and return what it passes through in the kit."""
    path, frames = CallPath(), 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal frames
        code = frame.f_code
        if code.co_name == "__init__" and event == "call":
            kind = type(frame.f_locals[code.co_varnames[0]])
            if kind.__module__.startswith("hf_serve.handlers."):
                path.objects[kind.__name__] += 1
        if not code.co_filename.startswith(str(HANDLERS)):
            return
        if event == "call":
            frames += 1
            path.functions[code] += 1
            path.frames = max(path.frames, frames)
        elif event == "return":
            frames -= 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return path


class Worker:
    """A handler with its context, as TorchServe's worker has them.

    Args:
        folder: the folder of the model.
        handler_section: the `handler:` section of its YAML.
    """

    def __init__(self, folder: Path, handler_section: dict[str, Any]) -> None:
        metrics = MetricsCacheYamlImpl(str(METRICS))
        metrics.initialize_cache()
        metrics.model_name = "m"
        manifest = {"model": {"modelName": "m"}}
        config = {"handler": handler_section}
        self.context = Context(
            "m", str(folder), manifest, 16, None, "0.12.0", True, metrics, config
        )
        self.handler = TransformersHandler()
        self.handler.initialize(self.context)

    def handle(self, rows: Sequence[Row]) -> list[Any]:
        """Return the response to each row, which has its fields and its headers."""
        self.context.request_processor = [RequestProcessor(headers) for _, headers in rows]
        self.context.metrics.request_ids = {at: f"id-{at}" for at in range(len(rows))}
        answers = self.handler.handle([fields for fields, _ in rows], self.context)
        statuses = [self.context.get_response_status(at)[0] for at in range(len(rows))]
        if statuses != [200] * len(rows):
            raise RuntimeError(f"The statuses are {statuses}: {answers}")
        return list(answers)

    def call_path(self, row: Row) -> CallPath:
        """Return what a request passes through, when it has been sent twice before."""
        for _ in range(2):
            self.handle([row])
        return call_path(lambda: self.handle([row]))

    def cpu_seconds(self, row: Row, batch: int) -> tuple[float, float]:
        """Return the CPU time of a request in `handle`, and in the forward passes of the model.

        Args:
            row: the request.
            batch: how many of them are in a batch.
        """
        model, rows, whole, inner = self.handler.model, [row] * batch, [], []
        timers = [_Timer(model.forward), _Timer(model.forward_packed)]
        vars(model).update(forward=timers[0], forward_packed=timers[1])
        for _ in range(REPEATS):
            before, start = sum(each.seconds for each in timers), time.process_time()
            self.handle(rows)
            whole.append(time.process_time() - start)
            inner.append(sum(each.seconds for each in timers) - before)
        del model.forward, model.forward_packed
        return statistics.median(whole) / batch, statistics.median(inner) / batch


class _Timer:
    """Adds up the CPU time of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any) -> Any:
        start = time.process_time()
        try:
            return self._function(*arguments)
        finally:
            self.seconds += time.process_time() - start


def tiny_generator(folder: Path) -> Path:
    """Create a tiny model that writes texts and chats; return its folder."""
    torch.manual_seed(0)
    tokenizer = load_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    tokenizer.save_pretrained(folder)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


class Workers:
    """Workers of a classifier and of a model that writes chats, both tiny.

    Args:
        folder: where the models are written.
    """

    def __init__(self, folder: Path) -> None:
        classifier = {"mode": "sequence_classification", "captum_explanation": True}
        self.classifier = Worker(bert_base(folder / "classifier", tiny=True), classifier)
        self.generator = Worker(tiny_generator(folder / "generator"), {"mode": "text_generation"})

    def call_paths(self) -> dict[str, CallPath]:
        """Return what a prediction, an explanation and a chat completion pass through."""
        return {
            "classification": self.classifier.call_path(CLASSIFICATION),
            "explanation": self.classifier.call_path(EXPLANATION),
            "chat completion": self.generator.call_path(CHAT),
        }


def main(
    names: Annotated[bool, typer.Option(help="Print every function.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count files, functions, calls, frames and objects of a prediction, an explanation, a chat."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(Path(folder))
        for name, path in workers.call_paths().items():
            found[name] = path.counts()
            if names:
                print(f"{name}\n{path}\n")
        for batch in BATCHES:
            whole, forward = workers.classifier.cpu_seconds(CLASSIFICATION, batch)
            found[f"classification, CPU in batches of {batch}"] = {
                "handle_us": round(1e6 * whole),
                "forward_us": round(1e6 * forward),
                "rest_us": round(1e6 * (whole - forward)),
            }
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for columns in COLUMNS:
        table = Table("", *columns)
        for name, figures in found.items():
            if columns[0] in figures:
                table.add_row(name, *(str(figures[column]) for column in columns))
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
