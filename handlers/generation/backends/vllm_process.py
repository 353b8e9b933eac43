"""The process that runs vLLM; :mod:`vllm` starts it.

It may run with another Python than the worker, so this script imports nothing of the package.
:mod:`hf_serve.handlers.generation.backends.process` describes its commands and events. Its
arguments are vLLM's `AsyncEngineArgs`, and the settings of a sequence are `SamplingParams` and a
`grammar` in llguidance's variant of Lark. The command of a prompt with images has what
:mod:`hf_serve.handlers.generation.backends.vllm` makes of them, as `images`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import mm_input, tokens_input
from vllm.multimodal.inputs import (
    MultiModalFieldConfig,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
from vllm.v1.metrics.loggers import StatLoggerBase

# The processes that vLLM spawns import this script, too.
run_path(str(Path(__file__).parents[2] / "compat" / "vllm.py"))["pause_while_polling"]()
# vLLM compiles what computes log probabilities at their first use, for one row and for more.
WARM_UP = {
    "max_tokens": 4,
    "top_k": 5,
    "top_p": 0.9,
    "min_p": 0.01,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "logprobs": 1,
    "seed": 1,
}
WARM_UP_PROMPT = [1, 2]
# The tables of the vocabulary are built for the first grammar.
WARM_UP_GRAMMAR = {"max_tokens": 2, "grammar": "start: /.*/"}
# A `stream_interval` that no sequence reaches.
NO_STREAM = 1 << 30
# The maximum length of a command in bytes; most of it are the tokens of a prompt and the pixels of
# its images in base64.
MAX_LINE = 1 << 29
IMAGE = "image"
Images = Sequence[dict[str, Any]]


class Steps(StatLoggerBase):
    """A logger of vLLM, which calls it after each step.

    Attributes:
        count: the number of steps.
        percent: the used percentage of the cache after the last step.
        on_step: is called after each step.
    """

    def __init__(self, vllm_config: Any = None, engine_index: int = 0) -> None:
        self.count, self.percent = 0, 0.0
        self.on_step: Callable[[], None] = lambda: None

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Take the statistics of a step."""
        if scheduler_stats is not None:
            self.count += 1
            self.percent = 100 * scheduler_stats.kv_cache_usage
        self.on_step()

    def log_engine_initialized(self) -> None:
        """Log nothing."""


class Process:
    """Runs sequences side by side.

    Args:
        engine: vLLM's `AsyncLLM`.
        steps: the logger of its steps.
        writer: the connection to the worker.
    """

    def __init__(self, engine: Any, steps: Steps, writer: asyncio.StreamWriter) -> None:
        self._engine, self._steps, self._writer = engine, steps, writer
        self._owes_pong = False
        steps.on_step = self._answer_ping
        self._running: dict[int, asyncio.Task[None]] = {}
        self._events: list[dict[str, Any]] = []
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Run until the worker ends.

        Raises:
            EngineDeadError: vLLM has failed.
        """
        commands = asyncio.create_task(self._read(reader))
        done, _ = await asyncio.wait([commands, self._failure], return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            command = json.loads(line)
            if "ping" in command:
                self._owes_pong = True
                # While sequences run, the pong waits for a step: vLLM's process may hang.
                if not self._running:
                    self._answer_ping()
            elif "cancel" in command:
                self._cancel(command["cancel"])
            else:
                self._start(**command)

    def _start(
        self,
        start: int,
        prompt: list[int],
        settings: dict[str, Any],
        *,
        in_parts: bool,
        images: Images = (),
    ) -> None:
        if not in_parts:  # vLLM sends the first token and the end in any case.
            settings = {**settings, "stream_interval": NO_STREAM}
        task = asyncio.create_task(self._generate(start, prompt, settings, images))
        self._running[start] = task
        task.add_done_callback(lambda _: self._forget(start))

    def _forget(self, number: int) -> None:
        self._running.pop(number, None)
        if not self._running:
            self._answer_ping()

    def _answer_ping(self) -> None:
        if self._owes_pong:
            self._owes_pong = False
            send(self._writer, {"pong": True})

    def _cancel(self, number: int) -> None:
        if number in self._running:
            self._running[number].cancel()

    async def _generate(
        self, number: int, prompt: list[int], settings: dict[str, Any], images: Images
    ) -> None:
        top = settings.get("logprobs") or 0
        try:
            async for output in generate(self._engine, str(number), prompt, settings, images):
                self._report({"id": number, **_event(output, top)})
        except EngineDeadError as error:
            if not self._failure.done():
                self._failure.set_exception(error)
        except EngineGenerateError as error:
            self._report({"id": number, "error": type(error.__cause__).__name__})
        except Exception as error:  # noqa: BLE001 - it checks values in several ways
            self._report({"id": number, "refused": str(error) or type(error).__name__})

    def _report(self, event: dict[str, Any]) -> None:
        """Send an event, together with the events of other sequences of the step."""
        if not self._events:
            asyncio.get_running_loop().call_soon(self._flush)
        self._events.append(event)

    def _flush(self) -> None:
        events, self._events = self._events, []
        numbers = {"cache_usage": self._steps.percent, "steps": self._steps.count}
        send(self._writer, {"texts": events, **numbers})


def _event(output: Any, top: int) -> dict[str, Any]:
    """Return the event of new tokens, with a number of the most likely tokens for each."""
    (text,) = output.outputs
    if text.finish_reason == "error":
        return {"error": "it ended with an error"}
    places = text.logprobs or []
    return {
        "sequences": [list(text.token_ids)],
        "logprobs": [
            place[token].logprob for token, place in zip(text.token_ids, places, strict=False)
        ],
        "top_logprobs": [_most_likely(place, top) for place in places if top],
        "finished": output.finished,
    }


def _most_likely(place: dict[int, Any], count: int) -> list[tuple[int, float]]:
    """Return the most likely tokens of a place, whose entries include the chosen token."""
    ranked = sorted((each.rank, token, each.logprob) for token, each in place.items())
    return [(token, logprob) for _, token, logprob in ranked[:count]]


def send(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    """Send one event to the worker."""
    writer.write(json.dumps(event, separators=(",", ":")).encode() + b"\n")


def generate(
    engine: Any, name: str, prompt: list[int], settings: dict[str, Any], images: Images = ()
) -> Any:
    """Return an iterator over the outputs of a sequence, each with its new tokens."""
    others = {name: value for name, value in settings.items() if name != "grammar"}
    grammar = settings.get("grammar")
    sampling = SamplingParams.from_optional(
        **others,
        structured_outputs=StructuredOutputsParams(grammar=grammar) if grammar else None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    given = prompt_with(images, prompt, engine.model_config.dtype)
    return engine.generate(given, sampling, name)


def prompt_with(images: Images, prompt: list[int], dtype: torch.dtype) -> Any:
    """Return what vLLM takes of a prompt and its images, whose pixels get the model's dtype."""
    if not images:
        return tokens_input(prompt)
    items = [
        MultiModalKwargsItem(
            {name: _element(name, each, dtype) for name, each in image["tensors"].items()}
        )
        for image in images
    ]
    return mm_input(
        prompt,
        MultiModalKwargsItems({IMAGE: items}),
        {IMAGE: [image["hash"] for image in images]},
        {IMAGE: [_range(image["places"]) for image in images]},
    )


def _element(name: str, tensor: dict[str, Any], dtype: torch.dtype) -> Any:
    numbers = np.frombuffer(base64.b64decode(tensor["data"]), dtype=tensor["dtype"])
    values = torch.from_numpy(numbers.reshape(tensor["shape"]).copy())
    if values.is_floating_point():
        values = values.to(dtype)
    counts = values.dtype == torch.int64
    if tensor["joined"] == "batched":
        field, values = MultiModalFieldConfig.batched(IMAGE, keep_on_cpu=counts), values[None]
    else:
        field = MultiModalFieldConfig.flat(IMAGE, [slice(0, len(values))], keep_on_cpu=counts)
    (element,) = field.build_elems(name, values)
    return element


def _range(places: list[int]) -> Any:
    first, length = places[0], places[-1] + 1 - places[0]
    has_vector = torch.zeros(length, dtype=torch.bool)
    has_vector[torch.tensor(places) - first] = True
    return PlaceholderRange(first, length, has_vector)


async def warm_up(engine: Any, *, grammars: bool) -> None:
    """Run one sequence, two at once, and one with a grammar if grammars are supported."""

    async def run(name: str, settings: dict[str, Any]) -> None:
        async for _ in generate(engine, name, WARM_UP_PROMPT, settings):
            pass

    await run("alone", WARM_UP)
    await asyncio.gather(run("first", WARM_UP), run("second", WARM_UP))
    if grammars:
        await run("grammar", WARM_UP_GRAMMAR)


async def serve(connection: socket.socket, arguments: dict[str, Any]) -> None:
    """Load a model and run sequences until the worker ends."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_LINE)
    steps = Steps()
    engine = None
    try:
        options = AsyncEngineArgs(**arguments)
        engine = AsyncLLM.from_engine_args(options, stat_loggers=[lambda *_: steps])
        await warm_up(engine, grammars=not options.skip_tokenizer_init)
        send(writer, {"ready": True})
        await Process(engine, steps, writer).run(reader)
    except Exception as error:  # noqa: BLE001 - the worker reports it and ends
        send(writer, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        writer.close()
        if engine:
            engine.shutdown()


def main() -> None:
    """Serve the commands of the socket whose number is the first argument."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    asyncio.run(serve(connection, json.loads(sys.argv[2])))


if __name__ == "__main__":
    main()
