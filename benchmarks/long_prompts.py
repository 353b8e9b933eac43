"""Measure the time to the first token with prompts that begin alike, and behind a long prompt.

    python -m benchmarks.long_prompts --save-mode openvino

A model of random weights is served in this process, without HTTP. All clients ask at the same time
for the texts of prompts with a common beginning, with `enable_prefix_caching` and without. Then a
short prompt comes right after a long one. Medians of milliseconds; "cpu s" is the processor time of
all processes, which other programs on the machine change less.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.text_generation.models import FIRST_WORD, config_of, language_model
from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import RequestError
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.handlers.types.request import Request, TextStream
from hf_serve.scripts.paths import BUILD

WORK = BUILD / "benchmarks" / "long_prompts"
OWN_TOKENS = 20
SHORT_PROMPT = 20
COLUMNS = ("enable_prefix_caching", "first token", "cached", "cpu s", "equal tokens")


def main(
    save_mode: Annotated[str, typer.Option(help="pretrained or openvino.")] = "openvino",
    clients: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 32,
    prefix: Annotated[int, typer.Option(min=1, help="Tokens of the common beginning.")] = 1500,
    long: Annotated[int, typer.Option(min=1, help="Tokens of the long prompt.")] = 8000,
    new_tokens: Annotated[int, typer.Option(min=1, help="New tokens of a text.")] = 16,
    dtype: Annotated[str, typer.Option(help="Data type of the model.")] = "float32",
    hidden_size: Annotated[int, typer.Option(min=64, help="Width of the model.")] = 896,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = 24,
    work: Annotated[Path, typer.Option(help="Folder for the model.")] = WORK,
) -> None:
    """Measure both, and print tables."""
    silence_libraries()
    sizes = {
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden_size // 32,
    }
    # The few words of a tiny model are enough.
    folder = language_model(work / f"{hidden_size}-{layers}", "qwen2", tiny=True, **sizes)
    vocabulary = config_of("qwen2", tiny=True).vocab_size
    if save_mode != "pretrained":
        formats.export(folder, _config(save_mode, dtype), folder)
    prompts = _alike(clients, prefix, vocabulary)
    table, expected = Table(*COLUMNS, title=f"{clients} prompts, {prefix} tokens alike"), []
    for cached in (False, True):
        engine = Engine.load(folder, _config(save_mode, dtype, enable_prefix_caching=cached))
        decode = engine.task.checkpoint.tokenizer.decode
        requests = [decode(prompt) for prompt in prompts]
        start = _cpu_seconds()
        first, texts = _ask(engine, requests, new_tokens)
        again, more = _ask(engine, requests, new_tokens)
        spent, found = _cpu_seconds() - start, texts + more
        expected = expected or found
        table.add_row(
            str(cached).lower(),
            *(f"{1000 * median(each):,.0f} ms" for each in (first, again)),
            f"{spent:,.1f}",
            f"{_agreement(expected, found):.2%}",
        )
    Console().print(table)
    short, other = (
        decode(_words(random.Random(seed), size, vocabulary))
        for seed, size in ((1, SHORT_PROMPT), (2, long))
    )
    alone = median(_ask(engine, [short], 1)[0][0] for _ in range(5))
    (_, behind), _ = _ask(engine, [other, short], 1)
    typer.echo(
        f"first token of {SHORT_PROMPT} tokens: {1000 * alone:,.0f} ms alone, {1000 * behind:,.0f}"
        f" ms right after a prompt of {long:,} tokens"
    )


def _config(save_mode: str, dtype: str, **handler: Any) -> ModelConfig:
    keys = {"mode": "text_generation", "save_mode": save_mode, "dtype": dtype, "cache_size": 1.0}
    section = {**keys, "captum_explanation": False, **handler}
    return ModelConfig.parse({"continuousBatching": True, "handler": section})


def _alike(count: int, prefix: int, vocabulary: int) -> list[list[int]]:
    generator = random.Random(0)
    common = _words(generator, prefix, vocabulary)
    return [[*common, *_words(generator, OWN_TOKENS, vocabulary)] for _ in range(count)]


def _words(generator: random.Random, count: int, vocabulary: int) -> list[int]:
    return [generator.randrange(FIRST_WORD, vocabulary) for _ in range(count)]


def _ask(
    engine: Engine, prompts: Sequence[str], new_tokens: int
) -> tuple[list[float], list[list[str]]]:
    """Send all prompts in their order; return the seconds to each first token, and the words."""
    start, first = time.perf_counter(), dict[int, float]()
    parameters = {"max_new_tokens": new_tokens, "return_full_text": False}

    def ask(number: int) -> list[str]:
        def note(_text: str, _token: Any) -> None:
            first.setdefault(number, time.perf_counter() - start)

        request = Request(
            prompts[number],
            parameters,
            stream=TextStream(note),
        )
        (outcome,) = engine.predict([request])
        if isinstance(outcome, RequestError):
            raise outcome
        first.setdefault(number, time.perf_counter() - start)
        found: Any = outcome
        return list(found[0]["generated_text"].split())

    with ThreadPoolExecutor(len(prompts)) as threads:
        futures = []
        for number in range(len(prompts)):
            futures.append(threads.submit(ask, number))
            time.sleep(0.001)  # So that they come in this order.
        tokens = [future.result() for future in futures]
    return [first[number] for number in range(len(prompts))], tokens


def _agreement(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    pairs = [
        one == other
        for texts in zip(expected, found, strict=True)
        for one, other in zip(*texts, strict=False)
    ]
    return sum(pairs) / len(pairs)


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    typer.run(main)
