"""Measure encoders and text generation on a GPU beside other libraries, in nine minutes at most.

`python -m benchmarks.gpu --only embeddings,kit` measures less: words are parts and contenders.
`--device cpu --small` tries it without a GPU, with tiny models whose figures mean nothing. The
models have the sizes of known ones and seeded random weights; nothing is downloaded. A contender
that is not installed, or fails, has the reason in the results. Nothing else should run on the
machine. Writes gpu.json, gpu.svg and gpu.md to a folder.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import torch
import typer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from benchmarks.generation import known_words
from benchmarks.models import TINY
from benchmarks.text_generation.models import ENDLESS, word_tokenizer
from hf_serve.hosts.command_line import plain_errors
from hf_serve.hosts.defaults import OFFLINE
from hf_serve.scripts.command_line import split_names
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD

WORK = BUILD / "benchmarks" / "gpu"
BASE: dict[str, Any] = {}
MINILM: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
QWEN: Mapping[str, Mapping[str, Any]] = {
    "qwen2_0_5b": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "qwen2_7b": {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18_944,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    },
}
TINY_QWEN = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 128,
    "vocab_size": 512,
}
ENCODERS = ("classification", "embeddings", "reranking")
PARTS = (*ENCODERS, "http", "generation", "generation_7b")
OF_ENCODERS = ("kit", "transformers", "sentence_transformers", "vllm")
OF_GENERATION = ("kit", "transformers_continuous", "vllm")
CONTENDERS = tuple(dict.fromkeys((*OF_ENCODERS, *OF_GENERATION)))
# Peers that take long to start come last: what does not fit in the time is left out.
ORDER = (
    (ENCODERS, "kit"),
    (ENCODERS, "transformers"),
    (("http",), "kit_http"),
    (("generation",), "kit"),
    (("generation",), "transformers_continuous"),
    (ENCODERS, "sentence_transformers"),
    (("generation_7b",), "kit"),
    (("generation_7b",), "transformers_continuous"),
    (ENCODERS, "vllm"),
    (("generation",), "vllm"),
    (("generation_7b",), "vllm"),
)
LONGEST, QUERY_TOKENS, MIXED = 512, 16, (8, 128)
STOP_SECONDS = 20
LEAST_SECONDS = 15  # a contender does not start with less time left


@dataclass
class Case:
    """A model and what it is asked.

    Attributes:
        work: floating-point operations of each load.
        rows: rows, or new tokens, of each load.
    """

    name: str
    part: str
    folder: Path
    loads: list[dict[str, Any]]
    work: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


@plain_errors()
def main(
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    small: Annotated[bool, typer.Option("--small", help="Tiny models and few texts.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join((*PARTS, *CONTENDERS))}.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each figure.")] = 2.0,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds of the whole run.")] = 520.0,
    python: Annotated[Path, typer.Option(help="Python of the other libraries.")] = Path(
        sys.executable
    ),
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = WORK / "results",
) -> None:
    """Measure the contenders and write the results."""
    end = time.monotonic() + time_limit
    words = known_words(split_names(only), [*PARTS, *CONTENDERS], "word") or []
    parts = [part for part in PARTS if part in words] or list(PARTS)
    contenders = [name for name in CONTENDERS if name in words] or list(CONTENDERS)
    seconds = 0.2 if small else seconds
    job = {
        "device": device,
        "seconds": seconds,
        "work": str(WORK),
        "clients": 4 if small else 16,
        "texts_of_a_request": 8 if small else 64,
    }
    document: dict[str, Any] = {
        "machine": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "versions": {"torch": torch.__version__},
        "small": small,
        "figures": [],
        "failures": [],
    }
    size = 512 if device == "cpu" else 8192
    product = Case("peak", "peak", Path(), [{"name": "product"}], {"product": 2.0 * size**3})
    found, reason = _measure("peak", [product], {**job, "size": size}, sys.executable, end)
    if reason or not found or "rate" not in found[0]:
        document["failures"].append({"contender": "peak", "reason": reason or str(found)})
    else:
        document["peak_tflops"] = found[0]["rate"] * product.work["product"] / 1e12
    _write(out, document)
    for of_parts, contender in ORDER:
        chosen = [part for part in of_parts if part in parts]
        if not chosen or contender.removesuffix("_http") not in contenders:
            continue
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            _add(document, contender, [], [], "no time was left")
            _write(out, document)
            continue
        others = contender in ("sentence_transformers", "vllm")
        interpreter = str(python) if others else sys.executable
        if others and interpreter == sys.executable and find_spec(contender) is None:
            _add(document, contender, [], [], f"it is not installed in {python}")
            _write(out, document)
            continue
        cases = [case for part in chosen for case in _cases(part, device, small=small)]
        typer.echo(f"{contender}: {', '.join(chosen)}; {left:.0f} s left")
        found, reason = _measure(contender, cases, job, interpreter, end)
        _add(document, contender, cases, found, reason)
        _write(out, document)
    typer.echo(_table(document))
    typer.echo(f"Results: {out}")


def _measure(
    contender: str, cases: Sequence[Case], job: Mapping[str, Any], python: str, end: float
) -> tuple[list[dict[str, Any]], str | None]:
    """Return what a contender printed, and why it did not end as it should."""
    left = max(1.0, end - time.monotonic())
    given = [
        {
            "name": case.name,
            "part": case.part if case.part in ENCODERS else "generation",
            "folder": str(case.folder),
            "loads": case.loads,
            "size": job.get("size"),
        }
        for case in cases
    ]
    if contender == "kit_http":
        given = [{**each, "part": "classification"} for each in given]
    message = json.dumps({**job, "contender": contender, "cases": given})
    command = [python, "-m", "benchmarks.contenders.gpu_engines"]
    with TemporaryFile("w+", encoding="utf-8") as output, TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **OFFLINE},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        reason = None
        try:
            process.communicate(message, timeout=left)
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {left:.0f} s"
            # It stops a server that it has started.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        finally:
            # A server, or an engine's other processes, may be left.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        log.seek(0)
        lines = [line for line in output.read().splitlines() if line.startswith('{"case"')]
        if process.returncode and not reason:
            reason = ([each for each in log.read().splitlines() if each.strip()] or ["?"])[-1][:300]
    return [json.loads(line) for line in lines], reason


def _add(
    document: dict[str, Any],
    contender: str,
    cases: Sequence[Case],
    found: Sequence[Mapping[str, Any]],
    reason: str | None,
) -> None:
    """Add the figures of a contender, and why others are missing."""
    by_name = {case.name: case for case in cases}
    peak = document.get("peak_tflops")
    for each in found:
        case = by_name[each["case"]]
        if "failure" in each:
            document["failures"].append({"contender": contender, **each})
            continue
        load, rate = each["load"], each["rate"]
        tflops = rate * case.work[load] / 1e12
        document["figures"].append(
            {
                "part": case.part,
                "model": case.name,
                "load": load,
                "contender": contender,
                "per_second": rate * case.rows[load],
                "tflops": tflops,
                "share_of_peak": tflops / peak if peak else None,
            }
        )
    if reason:
        document["failures"].append({"contender": contender, "reason": reason})


def _cases(part: str, device: str, *, small: bool) -> list[Case]:
    """Return the models of a part, which are made where they are missing."""
    if part.startswith("generation"):
        name = "qwen2_7b" if part == "generation_7b" else "qwen2_0_5b"
        return [_generating(part, name, device, small=small)]
    tokenizer = _encoder_tokenizer()
    sizes = {"bert_base": BASE, **({"minilm": MINILM} if part == "embeddings" else {})}
    return [
        _encoder(part, f"{part}_{name}", size, tokenizer, small=small)
        for name, size in sizes.items()
    ]


def _encoder(
    part: str,
    name: str,
    size: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerFast,
    *,
    small: bool,
) -> Case:
    folder = WORK / "models" / (f"{name}_small" if small else name)
    labels = {"num_labels": 1 if part == "reranking" else 2}
    config = BertConfig(
        **{**size, **(TINY if small else {}), **labels}, vocab_size=tokenizer.vocab_size
    )
    if not (folder / "tokenizer.json").is_file():
        torch.manual_seed(0)
        model: Any = BertModel if part == "embeddings" else BertForSequenceClassification
        model(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    count = 16 if small else 2048
    lengths = {
        "mixed": _mixed(count),
        "128": [128] * (count // 2),
        "512": [512] * (count // 8),
    }
    case = Case(name, part, folder, [])
    drawn = random.Random(0)
    words = [word for word in tokenizer.get_vocab() if word.isalpha()]
    for load, tokens in lengths.items():
        if part == "reranking":
            rows: dict[str, Any] = {"pairs": _pairs(drawn, words, tokens)}
        else:
            rows = {"texts": [" ".join(drawn.choices(words, k=each - 2)) for each in tokens]}
        case.loads.append({"name": load, **rows})
        case.rows[load] = len(tokens)
        case.work[load] = sum(_forward(config, each) for each in tokens)
    return case


def _mixed(count: int) -> list[int]:
    """Return log-normal lengths, with a mean of about 31 tokens."""
    drawn = random.Random(1)
    shortest, longest = MIXED
    return [min(longest, max(shortest, int(drawn.lognormvariate(3.25, 0.6)))) for _ in range(count)]


def _pairs(
    drawn: random.Random, words: Sequence[str], tokens: Sequence[int]
) -> list[tuple[str, list[str]]]:
    """Return queries with 32 texts each; a query and a text have the tokens of a row together."""
    queries = []
    for first in range(0, len(tokens), 32):
        asked = min(QUERY_TOKENS, min(tokens[first : first + 32]) - 4)
        texts = [
            " ".join(drawn.choices(words, k=each - 3 - asked))
            for each in tokens[first : first + 32]
        ]
        queries.append((" ".join(drawn.choices(words, k=asked)), texts))
    return queries


def _forward(config: Any, tokens: int, attended: float | None = None) -> float:
    """Return the operations of the layers for a row: its matrices, and attention.

    Source: two operations for each weight and token, and four for each pair of tokens and number of
    a vector, in each layer.
    """
    heads = config.num_attention_heads
    key_value = getattr(config, "num_key_value_heads", heads) / heads
    hidden, wide = config.hidden_size, config.intermediate_size
    gates = 3 if config.model_type == "qwen2" else 2
    weights = hidden * hidden * (2 + 2 * key_value) + gates * hidden * wide
    pairs = tokens * tokens if attended is None else attended
    return float(config.num_hidden_layers * (2 * weights * tokens + 4 * hidden * pairs))


def _generating(part: str, name: str, device: str, *, small: bool) -> Case:
    config = Qwen2Config(**(TINY_QWEN if small else QWEN[name]), **ENDLESS)
    folder = WORK / "models" / (f"{name}_small" if small else name)
    tokenizer_file = folder / "tokenizer.json"
    if not tokenizer_file.is_file():
        torch.manual_seed(0)
        # Random numbers of a GPU take no minutes.
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.generation_config = GenerationConfig(**ENDLESS)
        model.save_pretrained(folder)
        del model
        if device == "cuda":
            torch.cuda.empty_cache()
        word_tokenizer(config.vocab_size).save_pretrained(folder)
    count, new_tokens = (4, 4) if small else (128, 64)
    drawn = random.Random(2)
    words = [
        word
        for word in PreTrainedTokenizerFast.from_pretrained(folder).get_vocab()
        if word.isalpha()
    ]
    lengths = [drawn.randint(5, 20 if small else 200) for _ in range(count)]
    load = {
        "name": f"{count}_prompts",
        "prompts": [" ".join(drawn.choices(words, k=each)) for each in lengths],
        "new_tokens": new_tokens,
    }
    work = sum(
        _forward(config, each + new_tokens, (each + new_tokens) ** 2 / 2)
        + 2.0 * config.hidden_size * config.vocab_size * new_tokens
        for each in lengths
    )
    of_load = str(load["name"])
    return Case(name, part, folder, [load], {of_load: work}, {of_load: count * new_tokens})


def _encoder_tokenizer() -> PreTrainedTokenizerFast:
    """Return a WordPiece tokenizer of 30,522 entries as BERT has, of seeded random words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = word_tokenizer(30_522 - len(special) + 2).get_vocab()
    entries = [*special, *(word for word in words if word.isalpha())]
    vocabulary = {word: number for number, word in enumerate(entries)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=special[1]))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]",
        "[CLS] $A [SEP] $B:1 [SEP]:1",
        [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    names = ("pad", "unk", "cls", "sep", "mask")
    tokens = {f"{name}_token": entry for name, entry in zip(names, special, strict=True)}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=LONGEST, **tokens)


def _write(out: Path, document: Mapping[str, Any]) -> None:
    """Write the results so far, and their plot where matplotlib is installed."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (out / "gpu.md").write_text(_table(document), encoding="utf-8")
    if not document["figures"]:
        return
    try:
        _plot(out / "gpu.svg", document)
    except ImportError as error:
        typer.echo(f"There is no plot: {error}")


def _table(document: Mapping[str, Any]) -> str:
    peak = document.get("peak_tflops")
    lines = [
        f"{document['machine']}, peak {f'{peak:.1f} TFLOP/s' if peak else 'not measured'}"
        + (" (tiny models: the figures mean nothing)" if document["small"] else ""),
        "",
        "| part | model | load | contender | rows or tokens/s | share of the peak |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for each in document["figures"]:
        share = each["share_of_peak"]
        lines.append(
            f"| {each['part']} | {each['model']} | {each['load']} | {each['contender']}"
            f" | {each['per_second']:,.0f} | {'–' if share is None else f'{share:.1%}'} |"
        )
    for each in document["failures"]:
        about = " ".join(str(each[name]) for name in ("case", "load") if name in each)
        lines.append(f"\n{each['contender']} {about}: {each.get('failure') or each['reason']}")
    return "\n".join(lines) + "\n"


def _plot(path: Path, document: Mapping[str, Any]) -> None:
    """Draw the share of the peak of each contender, by model and load."""
    import matplotlib as mpl  # noqa: PLC0415 - the results do not need it

    mpl.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    figures = document["figures"]
    groups = list(dict.fromkeys((each["part"], each["model"], each["load"]) for each in figures))
    names = list(dict.fromkeys(each["contender"] for each in figures))
    drawing, axes = pyplot.subplots(figsize=(9, 1.5 + 0.2 * len(groups) * (len(names) + 1)))
    height = 1 / (len(names) + 1)
    for number, name in enumerate(names):
        own = [each for each in figures if each["contender"] == name]
        places = [groups.index((each["part"], each["model"], each["load"])) for each in own]
        bars = axes.barh(
            [place + number * height for place in places],
            [100 * (each["share_of_peak"] or 0) for each in own],
            height,
            label=name,
        )
        axes.bar_label(
            bars, [f"{each['per_second']:,.0f}/s" for each in own], fontsize=7, padding=2
        )
    middle = height * (len(names) - 1) / 2
    axes.set_yticks(
        [place + middle for place in range(len(groups))],
        [f"{part}, {model.removeprefix(f'{part}_')}, {load}" for part, model, load in groups],
    )
    axes.invert_yaxis()
    axes.set_xlabel("% of the peak of a matrix product in bfloat16")
    axes.set_title(document["machine"])
    axes.legend(fontsize=8)
    drawing.tight_layout()
    drawing.savefig(path)
    pyplot.close(drawing)


if __name__ == "__main__":
    typer.run(main)
