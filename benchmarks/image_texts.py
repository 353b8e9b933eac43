"""Count the tokens per forward of texts about images: one client after another, and all at once.

`python -m benchmarks.image_texts FOLDER` takes a folder with an unpacked archive of mode
image_text_to_text. Tokens per forward of the decoder do not depend on what else the machine does;
tokens per second do.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import PreTrainedModel

from hf_serve.demo_models.synthetic_images import as_png, draw
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import RequestError
from hf_serve.handlers.generation.backends.process import BackendModel
from hf_serve.handlers.types.request import Request, TextStream
from hf_serve.hosts.command_line import plain_errors

QUESTIONS = ("What is it?", "Which colours are in the picture?", "Why?")


@plain_errors()
def main(
    folder: Annotated[Path, typer.Argument(help="An unpacked archive.")],
    clients: Annotated[int, typer.Option(min=2, help="Requests at the same time.")] = 16,
    tokens: Annotated[int, typer.Option(min=2, help="New tokens of a text.")] = 64,
    side: Annotated[int, typer.Option(min=16, help="Pixels of a side of an image.")] = 256,
) -> None:
    """Print tokens per forward and per second with one client and with several."""
    engine = Engine.load(folder)
    requests = list(questions(clients, tokens, side))
    for count in (1, clients):
        line = measure(engine, requests, count)
        typer.echo(f"{count:2} at a time: {line}")


def questions(count: int, tokens: int, side: int) -> Iterator[Request]:
    """Yield streamed requests about distinct images, each for so many tokens."""
    rng = random.Random(0)
    for number in range(count):
        picture = as_png(draw(rng).image.resize((side, side)))
        inputs = {
            "image": base64.b64encode(picture).decode(),
            "text": QUESTIONS[number % len(QUESTIONS)],
        }
        length = {"max_new_tokens": tokens, "min_new_tokens": tokens}
        yield Request(inputs, length, stream=TextStream(lambda _new, _result: None))


def measure(engine: Engine, requests: list[Request], clients: int) -> str:
    """Send all requests, so many at a time, and describe what it took."""
    with forwards(engine.model) as count, ThreadPoolExecutor(clients) as pool:
        begun = time.perf_counter()
        results = list(pool.map(lambda request: engine.predict([request])[0], requests))
        seconds = time.perf_counter() - begun
        steps = count()
    if error := next((each for each in results if isinstance(each, RequestError)), None):
        raise error
    new = sum(request.parameters["max_new_tokens"] for request in requests)
    return f"{new / steps:.2f} tokens per forward, {new / seconds:,.0f} tokens/s"


@contextmanager
def forwards(model: Any) -> Iterator[Callable[[], int]]:
    """Count the forwards of the decoder within the block."""
    if isinstance(model, BackendModel):
        begun = model.steps
        yield lambda: model.steps - begun
        return
    seen: list[str] = []

    def see(module: torch.nn.Module, _: Any) -> None:
        if isinstance(module, PreTrainedModel) and module.can_generate():
            seen.append(type(module).__name__)

    hook = register_module_forward_pre_hook(see)
    try:
        yield lambda: len(seen)
    finally:
        hook.remove()


if __name__ == "__main__":
    typer.run(main)
