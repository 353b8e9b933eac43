"""Text generation by openvino-genai's continuous batching, for `continuousBatching: true`.

The engine runs in a process of its own, see :mod:`handlers.formats._genai_process`.
"""

from __future__ import annotations

import itertools
import json
import logging
import secrets
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from handlers.errors import (
    DeviceFailed,
    Overloaded,
    RequestTooLarge,
    Unprocessable,
    WrongCheckpoint,
    summarize,
)
from handlers.formats._cache import BLOCK
from handlers.formats._genai_grammar import GrammarTrials
from handlers.generation.generator import Prompt, end_tokens
from handlers.generation.parameters import GenerationParameters
from handlers.generation.scheduler import ContinuousModel, NewTokens, Receive
from handlers.generation.text_grammar import TextGrammar
from handlers.runtime.model import Model

logger = logging.getLogger(__name__)

SCRIPT = Path(__file__).with_name("_genai_process.py")
START_SECONDS = 600
# The names of transformers and their values without an effect, where openvino-genai has them, too.
SETTINGS: Mapping[str, Any] = {
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "min_new_tokens": 0,
    "num_beams": 1,
}
OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
OF_BEAMS = {"num_return_sequences": 1, "length_penalty": 1.0, "early_stopping": False}
NOT_WITH_BEAMS = ("do_sample", "frequency_penalty", "presence_penalty")
BEAM_NGRAMS = {"no_repeat_ngram_size": 0}
# What transformers does besides; openvino-genai would ignore it.
LACKING: Mapping[str, Any] = {
    "typical_p": 1.0,
    "min_length": 0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "top_h": None,
    "encoder_repetition_penalty": 1.0,
    "bad_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "guidance_scale": None,
    "logit_bias": {},
    "top_n_tokens": 0,
    "prompt_lookup_num_tokens": None,
}
# Without its own value, a sampling request has that of transformers' `generate`.
DEFAULT_TOP_K = 50
MAX_SEED = 2**63 - 1


class GenAiModel(ContinuousModel):
    """A model that openvino-genai runs.

    Args:
        directory: the folder with the model.
        properties: OpenVINO's properties.
        scheduler: values of openvino-genai's `SchedulerConfig`; `max_num_seqs` is the number of
            texts that run at once.
        max_waiting: how many texts may wait for others to end.
        base: the checkpoint's generation config.
        load_static: loads the model for forward passes and batches, which explanations need.
        trials: tries grammars; None for a model that cannot have any.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, Any],
        scheduler: Mapping[str, Any],
        max_waiting: int,
        base: GenerationConfig,
        load_static: Callable[[], Model],
        trials: GrammarTrials | None,
    ) -> None:
        self._trials = trials
        self._base, self._ends = _settings_of_checkpoint(base), sorted(end_tokens(base))
        self._limit = scheduler["max_num_seqs"] + max_waiting
        self._cached_tokens = scheduler["num_kv_blocks"] * BLOCK
        self._load_static, self._static = load_static, threading.Lock()
        self._static_model: Model | None = None
        self._numbers = itertools.count(1)
        arguments = {
            "directory": str(directory),
            "properties": dict(properties),
            "scheduler": dict(scheduler),
            "vocabulary": str(trials.folder) if trials else None,
        }
        self._engine = _Engine(arguments)
        weakref.finalize(self, self._engine.close)

    def start(self, prompt: Prompt, number: int, receive: Receive) -> Callable[[], None]:
        settings = self._settings(prompt, number)
        if self._engine.texts >= self._limit:
            raise Overloaded(
                f"{self._engine.texts:,} texts are running or waiting; send the request again"
                " later."
            )
        if prompt.grammar:
            settings["structural_tag"] = self._structural_tag(prompt.grammar)
        own = next(self._numbers)
        tokens = [int(token) for token in prompt.features["input_ids"]]
        self._engine.start(own, tokens, settings, partial(self._receive, receive))
        return partial(self._engine.cancel, own)

    @property
    def load_metrics(self) -> Mapping[str, float]:
        return self._engine.load_metrics

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._static_copy().forward(batch)

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        return self._static_copy().generate(batch, config, **extra)

    def _static_copy(self) -> Model:
        """Return the model for forward passes, which the first explanation loads."""
        with self._static:
            if self._static_model is None:
                self._static_model = self._load_static()
            return self._static_model

    def _receive(self, receive: Receive, event: Mapping[str, Any]) -> None:
        if "refused" in event:
            # The last line says what is wrong, the others where it is checked.
            reason = event["refused"].strip().rpartition("\n")[2]
            sentence = f"The engine refuses the parameters: {summarize(Exception(reason))}"
            receive(NewTokens(error=Unprocessable(sentence)))
        elif "error" not in event:
            receive(NewTokens(event["sequences"], event["logprobs"], event["finished"]))
        elif event["error"] is None:
            receive(NewTokens(error=DeviceFailed()))
        else:
            reason = summarize(Exception(event["error"]))
            receive(
                NewTokens(
                    error=RequestTooLarge(
                        f"The engine does not generate this text ({reason}: it has"
                        f" {self._cached_tokens:,} tokens); send a shorter prompt, or ask for less."
                    )
                )
            )

    def _structural_tag(self, grammar: TextGrammar) -> str:
        if self._trials is None:
            grammar.compile()
            raise Unprocessable("Grammars are not possible with this model; leave them out.")
        return self._trials.structural_tag(grammar)

    def _settings(self, prompt: Prompt, number: int) -> dict[str, Any]:
        """Return the values of openvino-genai's `GenerationConfig` for a prompt.

        Raises:
            Unprocessable: openvino-genai cannot do what a parameter says.
        """
        parameters = prompt.parameters
        given = {**self._base, **parameters.for_generate, **_of_openai(parameters)}
        beams = given.get("num_beams", 1) > 1
        chosen = [name for name in NOT_WITH_BEAMS if beams and given.get(name)]
        if chosen:
            raise Unprocessable(
                f"{chosen[0]} cannot be done with num_beams {given['num_beams']} by this model,"
                " which has continuousBatching; leave one of them out."
            )
        known = {**SETTINGS, **({**OF_BEAMS, **BEAM_NGRAMS} if beams else {})}
        for name, value in given.items():
            neutral = {**LACKING, **BEAM_NGRAMS, **known}.get(name)
            if name not in known and name not in OF_BEAMS and value != neutral:
                raise Unprocessable(
                    f"{name} is {value!r}, which continuousBatching with save_mode: openvino cannot"
                    " do; leave it out."
                )
        settings = {
            name: given[name] for name in known if given.get(name) not in (None, known[name])
        }
        if prompt.grammar and "min_new_tokens" in settings:
            raise Unprocessable(
                "min_new_tokens cannot be done with response_format, grammar or tools by this"
                " model, which has continuousBatching; leave one of them out."
            )
        if not given.get("do_sample"):
            settings = {name: each for name, each in settings.items() if name not in OF_SAMPLING}
        elif "top_k" not in given:
            settings["top_k"] = DEFAULT_TOP_K
        # Without a seed, openvino-genai draws the same numbers for each text.
        seed = secrets.randbits(62) if parameters.seed is None else parameters.seed
        settings["rng_seed"] = (seed + number) % MAX_SEED
        if parameters.records_tokens:
            settings["logprobs"] = 1
        # Without an end token, openvino-genai would take the id -1.
        ends = {"stop_token_ids": self._ends} if self._ends else {"ignore_eos": True}
        return {**settings, "max_new_tokens": prompt.new_tokens, **ends}


class _Engine:
    """The process of the engine, and the texts that it generates.

    Args:
        arguments: those of `load` in the process.

    Raises:
        WrongCheckpoint: the process does not load the model.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the folder of the script has modules with the names of packages.
                [sys.executable, "-P", str(SCRIPT), str(theirs.fileno()), json.dumps(arguments)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours
        self._lock = threading.Lock()
        self._receivers: dict[int, Callable[[Mapping[str, Any]], None]] = {}
        self._running: set[int] = set()
        self._cache_usage = 0.0
        self._failed = False
        self._wait_until_ready()
        # The thread ends with the socket, and holds no reference to the model.
        threading.Thread(target=self._read, name="openvino-genai", daemon=True).start()

    @property
    def texts(self) -> int:
        """How many texts are running or waiting."""
        return len(self._receivers)

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """The numbers of running and waiting texts, and the used share of the cache in percent."""
        running = len(self._running & self._receivers.keys())
        waiting = self.texts - running
        return {
            "running_texts": running,
            "waiting_texts": max(0, waiting),
            "cache_usage": self._cache_usage,
        }

    def start(
        self,
        number: int,
        prompt: Sequence[int],
        settings: Mapping[str, Any],
        receive: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """Start a text.

        Raises:
            DeviceFailed: the process has ended.
        """
        with self._lock:
            if self._failed:
                raise DeviceFailed
            self._receivers[number] = receive
        self._send({"start": number, "prompt": prompt, "settings": settings})

    def cancel(self, number: int) -> None:
        """End a text; nothing where it has ended."""
        if self._forget(number):
            self._send({"cancel": number})

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):  # It has ended.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.terminate()
        self._process.wait()

    def _wait_until_ready(self) -> None:
        self._socket.settimeout(START_SECONDS)
        self._lines = self._socket.makefile("rb")
        try:
            event = json.loads(self._lines.readline() or b'{"failed": "the process ended"}')
        except TimeoutError:
            event = {"failed": f"not loaded in {START_SECONDS} s"}
        self._socket.settimeout(None)
        if "failed" in event:
            self.close()
            raise WrongCheckpoint(
                "openvino_model.xml",
                f"openvino-genai does not load it ({summarize(Exception(event['failed']), 300)})",
                "leave continuousBatching out",
            )

    def _read(self) -> None:
        try:
            for line in self._lines:
                event = json.loads(line)
                if "failed" in event:
                    logger.error("openvino-genai failed: %s", event["failed"])
                    break
                self._cache_usage = event["cache_usage"]
                for text in event["texts"]:
                    self._pass_on(text)
        except (OSError, ValueError):  # The socket was closed.
            pass
        self._fail()

    def _pass_on(self, text: Mapping[str, Any]) -> None:
        number = text["id"]
        receive = self._receivers.get(number)
        if receive is None:
            return
        if text.get("finished", True):
            self._forget(number)
        else:
            self._running.add(number)
        receive(text)

    def _forget(self, number: int) -> bool:
        self._running.discard(number)
        return self._receivers.pop(number, None) is not None

    def _fail(self) -> None:
        with self._lock:
            self._failed = True
            receivers, self._receivers = self._receivers, {}
        for receive in receivers.values():
            receive({"error": None})

    def _send(self, command: Mapping[str, Any]) -> None:
        message = json.dumps(command, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                self._socket.sendall(message)
            except OSError:
                logger.error("The process of openvino-genai has ended")  # `_read` reports it.


def _of_openai(parameters: GenerationParameters) -> dict[str, Any]:
    """Return the parameters that the kit itself applies to the logits of transformers."""
    names = {"frequency_penalty", "presence_penalty", "logit_bias", "top_n_tokens"}
    return parameters.model_dump(include=names, exclude_none=True)


def _settings_of_checkpoint(base: GenerationConfig) -> dict[str, Any]:
    """Return the values of a checkpoint's generation config that openvino-genai knows.

    Raises:
        WrongCheckpoint: it has one that openvino-genai would ignore.
    """
    given = {name: value for name, value in base.to_dict().items() if value is not None}
    lacking = [name for name, neutral in LACKING.items() if given.get(name, neutral) != neutral]
    if lacking:
        raise WrongCheckpoint(
            "generation_config.json",
            f"has {lacking[0]}, which continuousBatching with save_mode: openvino cannot do",
            "remove it there, or leave continuousBatching out",
        )
    return {name: given[name] for name in {**SETTINGS, **OF_BEAMS, **BEAM_NGRAMS} if name in given}
