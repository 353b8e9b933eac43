"""The process that runs openvino-genai's continuous batching; :mod:`openvino_genai` starts it.

A step of the pipeline holds Python's global interpreter lock while it computes, so that in the
process of the worker no other thread could read a request or send a token. This script imports
nothing of the package, which would load torch. Its commands and events are described in
:mod:`hf_serve.handlers.generation.backends.process`.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np

run_path(str(Path(__file__).parents[2] / "compat" / "openvino.py"))["disable_usage_reports"]()

import openvino
import openvino_genai

waits_for_prefix = run_path(str(Path(__file__).with_name("prefixes.py")))["waits_for_prefix"]
CHUNK = 1 << 16
# A sequence that is not streamed may wait one step for each of these numbers of tokens that it asks
# for, and four steps at most, so that several prompts are read together.
TOKENS_PER_WAITED_STEP = 16
MAX_WAITED_STEPS = 4
# Each takes some megabytes where the vocabulary is large.
MAX_GRAMMARS = 32
ANY_TEXT = '{"type": "structural_tag", "format": {"type": "any_text"}}'
# The ids of fillers are larger than the ids of the worker's sequences.
FILLER_IDS = 1 << 62
# openvino-genai's `StopCriteria` of a beam search, by transformers' `early_stopping`.
STOP_CRITERIA = {"True": "EARLY", "False": "HEURISTIC", "never": "NEVER"}


class Channel:
    """The connection to the worker, a socket with a number."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._unread = bytearray()

    def send(self, event: Mapping[str, Any]) -> None:
        """Send one event."""
        self._socket.sendall(json.dumps(event, separators=(",", ":")).encode() + b"\n")

    def commands(self, *, wait: bool) -> Iterator[Any]:
        """Yield the commands that have arrived; with `wait`, at least one.

        Raises:
            EOFError: the worker has ended.
        """
        while True:
            self._socket.setblocking(wait)
            try:
                new = self._socket.recv(CHUNK)
            except BlockingIOError:
                break
            if not new:
                raise EOFError
            self._unread += new
            wait = wait and b"\n" not in new
        self._socket.setblocking(True)
        *lines, self._unread = self._unread.split(b"\n")
        yield from map(json.loads, lines)


@dataclass
class RunningSequence:
    """A sequence, or all beams of a search, that the pipeline generates.

    Attributes:
        number: the id.
        handle: openvino-genai's `GenerationHandle`.
        prompt: the tokens of its prompt.
        in_parts: whether tokens are sent as they come.
        has_begun: whether the first token was sent.
    """

    number: int
    handle: Any
    prompt: list[int]
    in_parts: bool
    has_begun: bool = False

    def event(self) -> dict[str, Any] | None:
        """Return what to send after a step, if there is something."""
        status = self.handle.get_status()
        if status == openvino_genai.GenerationStatus.IGNORED:
            return {"id": self.number, "error": "the cache is too small for it", "finished": True}
        finished = status != openvino_genai.GenerationStatus.RUNNING
        if not (finished or (self._is_wanted and self.handle.can_read())):
            return None
        self.has_begun = True
        outputs = self._read(finished=finished)
        return {
            "id": self.number,
            "sequences": [each.generated_ids for each in outputs],
            "logprobs": outputs[0].generated_log_probs if len(outputs) == 1 else [],
            "finished": finished,
        }

    @property
    def _is_wanted(self) -> bool:
        return self.in_parts or not self.has_begun

    def _read(self, *, finished: bool) -> list[Any]:
        """Return the tokens that were not read, which may change for beams until their end."""
        if finished:
            return self.handle.read_all()
        return list(self.handle.read().values()) if self.in_parts else []


class Fillers:
    """Unread sequences, which are added to a few running ones.

    OpenVINO computes the attention of fewer sequences than threads in another way, with other last
    digits: in bfloat16, a greedy text would depend on the number of running sequences.

    Args:
        pipeline: openvino-genai's `ContinuousBatchingPipeline`.
        minimum: the minimum number of running sequences, unless none runs.
        tokens: the length of a filler.
        width: the width of the vectors of prompts; None for a model that reads tokens.
    """

    def __init__(self, pipeline: Any, minimum: int, tokens: int, width: int | None = None) -> None:
        self._pipeline, self._minimum = pipeline, minimum
        self._prompt = (
            np.zeros((1, 1), dtype=np.int64)
            if width is None
            else np.zeros((1, 1, width), dtype=np.float32)
        )
        self._settings = {"max_new_tokens": tokens, "ignore_eos": True}
        self._handles: list[Any] = []
        self._started = 0

    def add_to(self, running: int) -> None:
        """Start or cancel fillers so that the minimum of sequences runs."""
        status = openvino_genai.GenerationStatus.RUNNING
        self._handles = [each for each in self._handles if each.get_status() == status]
        wanted = max(0, self._minimum - running)
        while len(self._handles) > wanted:
            self._handles.pop().cancel()
        while len(self._handles) < wanted:
            self._handles.append(self._start())

    def _start(self) -> Any:
        self._started += 1
        number, prompt = FILLER_IDS + self._started, openvino.Tensor(self._prompt)
        return self._pipeline.add_request(number, prompt, _config(self._settings))


class Process:
    """Runs sequences side by side, step by step.

    Args:
        channel: the connection to the worker.
        pipeline: openvino-genai's `ContinuousBatchingPipeline`.
        grammars: its compiled grammars; None for a model that does not support grammars.
        max_running: the maximum number of running sequences. The pipeline has no such limit: it
            ignores its `max_num_seqs` where it splits prompts, and counts beams otherwise.
        splits_prompts: whether it reads prompts in parts, in the steps of the running sequences.
            Otherwise the running sequences wait while it reads prompts.
        shares_prefixes: whether prompts that begin alike share cached tokens.
        fillers: are added to a few running sequences.
    """

    def __init__(
        self,
        channel: Channel,
        pipeline: Any,
        grammars: Grammars | None,
        max_running: int,
        *,
        splits_prompts: bool,
        shares_prefixes: bool = False,
        fillers: Fillers,
    ) -> None:
        self._fillers, self._shares_prefixes = fillers, shares_prefixes
        self._channel, self._pipeline, self._grammars = channel, pipeline, grammars
        self._max_running, self._splits_prompts = max_running, splits_prompts
        self._steps = self._waited_steps = 0
        self._has_cancelled = False
        self._running: dict[int, RunningSequence] = {}
        self._waiting: dict[int, dict[str, Any]] = {}

    def run(self) -> None:
        """Run until the worker ends."""
        while True:
            for command in self._channel.commands(wait=not (self._running or self._waiting)):
                if "ping" in command:
                    self._channel.send({"pong": True})
                elif "cancel" in command:
                    self._cancel(command["cancel"])
                else:
                    self._waiting[command["start"]] = command
            refused = self._start_waiting()
            if self._running:
                self._fillers.add_to(len(self._running))
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
                self._steps += 1
            self._report(refused)

    def _start_waiting(self) -> list[dict[str, Any]]:
        """Start waiting sequences; return the events of those that the pipeline refuses."""
        has_cancelled, self._has_cancelled = self._has_cancelled, False
        # The pipeline frees the cache of cancelled sequences in its next step. If they fill the
        # cache and no other sequence runs, it would fail a new one now.
        if (has_cancelled and not self._running) or not self._has_room:
            return []
        if self._waits_for_others():
            self._waited_steps += 1
            return []
        self._waited_steps = 0
        refused = []
        for number, command in list(self._waiting.items()):
            if not self._has_room:
                break
            if self._waits_for_prefix(command["prompt"]):
                continue
            del self._waiting[number]
            if error := self._start(**command):
                refused.append({"id": number, "refused": error})
        return refused

    def _waits_for_prefix(self, prompt: list[int]) -> bool:
        if not self._shares_prefixes:
            return False
        running = self._running.values()
        return bool(
            waits_for_prefix(prompt, (each.prompt for each in running if not each.has_begun))
        )

    @property
    def _has_room(self) -> bool:
        return len(self._running) < self._max_running

    def _waits_for_others(self) -> bool:
        """Return whether the waiting sequences leave the next step to the running ones.

        Streams do not, because their clients see the first token.
        """
        if self._splits_prompts or not (self._waiting and self._running):
            return False
        waiting = self._waiting.values()
        if any(command["in_parts"] for command in waiting):
            return False
        shortest = min(command["settings"]["max_new_tokens"] for command in waiting)
        return self._waited_steps < min(shortest // TOKENS_PER_WAITED_STEP, MAX_WAITED_STEPS)

    def _start(
        self,
        start: int,
        prompt: list[int],
        settings: dict[str, Any],
        *,
        in_parts: bool,
        vectors: str | None = None,
        shape: tuple[int, ...] = (),
    ) -> str | None:
        """Start a sequence; return why the pipeline refuses it."""
        if vectors is None:
            tokens = openvino.Tensor(np.array([prompt], dtype=np.int64))
        else:
            numbers = np.frombuffer(base64.b64decode(vectors), dtype=np.float32)
            tokens = openvino.Tensor(numbers.reshape(shape).copy())
        if self._grammars and "structural_tag" in settings:
            self._grammars.add(settings["structural_tag"])
        try:
            handle = self._pipeline.add_request(start, tokens, _config(settings))
        except Exception as error:  # noqa: BLE001 - it checks values in several ways
            return str(error) or type(error).__name__
        # The tokens of beams may change until their end.
        in_parts = in_parts and settings.get("num_beams", 1) == 1
        self._running[start] = RunningSequence(start, handle, prompt, in_parts)
        return None

    def _cancel(self, number: int) -> None:
        self._waiting.pop(number, None)
        if number in self._running:
            self._running.pop(number).handle.cancel()
            self._has_cancelled = True

    def _report(self, refused: list[dict[str, Any]]) -> None:
        """Send the new tokens of every sequence, the first tokens of new sequences first."""
        running = sorted(self._running.values(), key=lambda each: each.has_begun)
        texts = [event for each in running if (event := each.event())]
        if not (refused or texts):
            return
        usage = self._pipeline.get_metrics().cache_usage
        event = {"texts": [*refused, *texts], "cache_usage": usage, "steps": self._steps}
        self._channel.send(event)
        for each in texts:
            if each["finished"]:
                del self._running[each["id"]]


class Grammars:
    """The compiled grammars of a tokenizer, which it never removes by itself.

    It keeps them for one number of logits, so that a sequence of a model with another number
    removes them. Running sequences keep their grammars.

    Args:
        tokenizer: openvino-genai's `Tokenizer`.
        directory: a model without weights, which has another number of logits.
    """

    def __init__(self, tokenizer: Any, directory: Path) -> None:
        threads = {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
        self._other = openvino_genai.LLMPipeline(
            directory, tokenizer, "CPU", ATTENTION_BACKEND="SDPA", **threads
        )
        self._seen: set[str] = set()

    def add(self, tag: str) -> None:
        """Note a grammar of a new sequence; remove all others where there are too many."""
        if tag in self._seen:
            return
        if len(self._seen) == MAX_GRAMMARS:
            config = _config({"max_new_tokens": 1, "structural_tag": ANY_TEXT})
            self._other.generate(openvino.Tensor(np.zeros((1, 1), dtype=np.int64)), config)
            self._seen.clear()
        self._seen.add(tag)


def load(
    directory: str, properties: dict[str, Any], scheduler: dict[str, Any], vocabulary: str | None
) -> tuple[Any, Grammars | None]:
    """Return a pipeline and its grammars.

    Args:
        directory: the folder with the model.
        properties: OpenVINO's properties.
        scheduler: values of openvino-genai's `SchedulerConfig`.
        vocabulary: the folder with the vocabulary; None for a model without grammars.
    """
    config = openvino_genai.SchedulerConfig()
    for name, value in scheduler.items():
        setattr(config, name, value)
    pipeline = openvino_genai.ContinuousBatchingPipeline
    if vocabulary is None:
        return pipeline(directory, config, "CPU", properties), None
    tokenizer = openvino_genai.Tokenizer(vocabulary)
    grammars = Grammars(tokenizer, Path(vocabulary) / "other")
    return pipeline(directory, tokenizer, config, "CPU", **properties), grammars


def _config(settings: dict[str, Any]) -> Any:
    config = openvino_genai.GenerationConfig()
    if settings.get("ignore_eos"):
        config.set_eos_token_id(0)
    for name, value in settings.items():
        if name == "early_stopping":
            word = STOP_CRITERIA[str(value)]
            config.stop_criteria = getattr(openvino_genai.StopCriteria, word)
        elif name == "structural_tag":
            config.structured_output_config = openvino_genai.StructuredOutputConfig(
                structural_tags_config=value
            )
        else:
            setattr(config, name, set(value) if name == "stop_token_ids" else value)
    return config


def _silence() -> None:
    """Discard standard output and error: warnings of xgrammar may quote a request."""
    with Path(os.devnull).open("wb") as nothing:
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)


def main() -> None:
    """Serve the commands of the socket whose number is the first argument."""
    channel = Channel(int(sys.argv[1]))
    try:
        arguments = json.loads(sys.argv[2])
        max_running = arguments.pop("max_running")
        minimum, tokens = arguments.pop("min_running"), arguments.pop("filler_tokens")
        width = arguments.pop("width")
        scheduler = arguments["scheduler"]
        pipeline, grammars = load(**arguments)
        _silence()
        channel.send({"ready": True})
        process = Process(
            channel,
            pipeline,
            grammars,
            max_running,
            splits_prompts=scheduler["dynamic_split_fuse"],
            shares_prefixes=scheduler["enable_prefix_caching"],
            fillers=Fillers(pipeline, minimum, tokens, width),
        )
        process.run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # noqa: BLE001 - the worker reports it and ends
        channel.send({"failed": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
