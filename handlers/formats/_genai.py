"""Text generation by openvino-genai's continuous batching, for `continuousBatching: true`.

The engine runs in a process of its own, see :mod:`handlers.formats._genai_process`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from handlers.errors import RequestError, RequestTooLarge, Unprocessable
from handlers.formats._cache import BLOCK
from handlers.formats._engine_process import EngineModel, EngineProcess, EngineProgram
from handlers.formats._engine_settings import (
    DEFAULT_TOP_K,
    MAX_SEED,
    OF_GENERATE_ALONE,
    given_settings,
    settings_of_checkpoint,
)
from handlers.formats._genai_grammar import GrammarTrials
from handlers.generation.generator import Prompt, end_tokens
from handlers.generation.text_grammar import TextGrammar
from handlers.runtime.model import Model

PROGRAM = EngineProgram(
    "openvino-genai",
    Path(__file__).with_name("_genai_process.py"),
    "openvino_model.xml",
    "leave continuousBatching out",
)
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
LACKING: Mapping[str, Any] = {**OF_GENERATE_ALONE, "logit_bias": {}, "top_n_tokens": 0}
ENGINE = "continuousBatching with save_mode: openvino"


class GenAiModel(EngineModel):
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
        has_gradients: whether that model has gradients.
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
        *,
        has_gradients: bool = False,
    ) -> None:
        self._trials = trials
        self._base = _base_of(base)
        self._ends = sorted(end_tokens(base))
        self._cached_tokens = scheduler["num_kv_blocks"] * BLOCK
        arguments = {
            "directory": str(directory),
            "properties": dict(properties),
            "scheduler": dict(scheduler),
            "vocabulary": str(trials.folder) if trials else None,
        }
        process = EngineProcess(PROGRAM, arguments)
        limit = scheduler["max_num_seqs"] + max_waiting
        super().__init__(process, limit, load_static, has_gradients=has_gradients)

    def _failure(self, reason: str) -> RequestError:
        return RequestTooLarge(
            f"The engine does not generate this text ({reason}: it has"
            f" {self._cached_tokens:,} tokens); send a shorter prompt, or ask for less."
        )

    def _constraints(self, grammar: TextGrammar) -> dict[str, Any]:
        if self._trials is None:
            grammar.compile()
            raise Unprocessable("Grammars are not possible with this model; leave them out.")
        return {"structural_tag": self._trials.structural_tag(grammar)}

    def _settings(self, prompt: Prompt, number: int) -> dict[str, Any]:
        """Return the values of openvino-genai's `GenerationConfig` for a prompt.

        Raises:
            Unprocessable: openvino-genai cannot do what a parameter says.
        """
        parameters = prompt.parameters
        given = given_settings(self._base, parameters)
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
                raise Unprocessable(f"{name} is {value!r}, which {ENGINE} cannot do; leave it out.")
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


def check_generation_config(base: GenerationConfig) -> None:
    """Check that openvino-genai does what a checkpoint's generation config says.

    Raises:
        WrongCheckpoint: it does not.
    """
    _base_of(base)


def _base_of(base: GenerationConfig) -> dict[str, Any]:
    known = {**SETTINGS, **OF_BEAMS, **BEAM_NGRAMS}
    return settings_of_checkpoint(base, known, LACKING, ENGINE)
