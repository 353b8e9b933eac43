"""What a prompt asks for, by the names of transformers, for an engine that is another program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import GenerationConfig

from handlers.config.quoting import shorten
from handlers.errors import WrongCheckpoint
from handlers.generation.parameters import GenerationParameters

# Without its own value, a sampling request has that of transformers' `generate`.
DEFAULT_TOP_K = 50
MAX_SEED = 2**63 - 1
# What `generate` of transformers does and no engine has, with the values that have no effect.
OF_GENERATE_ALONE: Mapping[str, Any] = {
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
    "prompt_lookup_num_tokens": None,
}


def lacking_parameters(*lacking: Iterable[str]) -> list[str]:
    """Return the parameters of a request among the names of what an engine lacks."""
    return sorted(set().union(*lacking) & GenerationParameters.model_fields.keys())


def refusal(name: str, value: Any, engine: str) -> str:
    """Return the sentence for a parameter with a value that an engine cannot do."""
    return f"{name} is {shorten(json.dumps(value))}, which {engine} cannot do; leave it out."


def given_settings(base: Mapping[str, Any], parameters: GenerationParameters) -> dict[str, Any]:
    """Return what a prompt asks for.

    Args:
        base: the values of the checkpoint's generation config.
        parameters: those of the prompt, which take precedence.
    """
    # The kit itself applies them to the logits of transformers.
    of_kit = {
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "allowed_token_ids",
        "bad_words",
        "top_n_tokens",
    }
    given = parameters.model_dump(include=of_kit, exclude_none=True)
    return {**base, **parameters.for_generate, **given}


def settings_of_checkpoint(
    base: GenerationConfig, known: Iterable[str], lacking: Mapping[str, Any], engine: str
) -> dict[str, Any]:
    """Return the values of a checkpoint's generation config that an engine knows.

    Args:
        base: the checkpoint's generation config.
        known: the names that the engine knows.
        lacking: the names that it would ignore, with the values that have no effect.
        engine: the keys of the YAML that select the engine, for the error message.

    Raises:
        WrongCheckpoint: it has one that the engine would ignore.
    """
    given = {name: value for name, value in base.to_dict().items() if value is not None}
    unknown = [name for name, neutral in lacking.items() if given.get(name, neutral) != neutral]
    if unknown:
        raise WrongCheckpoint(
            "generation_config.json",
            f"has {unknown[0]}, which {engine} cannot do",
            "remove it there, or leave continuousBatching out",
        )
    return {name: given[name] for name in known if name in given}
