"""What a prompt asks for, by the names of transformers, for an engine that is another program."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from transformers import GenerationConfig

from handlers.config.quoting import shorten
from handlers.errors import WrongCheckpoint
from handlers.generation.checkpoint_defaults import SETTINGS_OF_FILE
from handlers.generation.parameter_spec import ParameterSpec, specs_of
from handlers.generation.parameters import GenerationParameters

# Whether an engine does a parameter.
Does = Callable[[ParameterSpec], bool]

MAX_SEED = 2**63 - 1
# The parameters that choose tokens.
CHOOSING: Mapping[str, ParameterSpec] = {
    name: spec for name, spec in specs_of(GenerationParameters).items() if spec.transformers
}


def lacking_parameters(does: Does) -> dict[str, ParameterSpec]:
    """Return the parameters that an engine lacks, but those that need another one that it lacks."""
    return {
        name: spec
        for name, spec in CHOOSING.items()
        if not does(spec) and (spec.needs is None or does(CHOOSING[spec.needs]))
    }


def refusal(name: str, value: Any, engine: str) -> str:
    """Return the sentence for a parameter with a value that an engine cannot do."""
    return f"{name} is {shorten(json.dumps(value))}, which {engine} cannot do; leave it out."


def given_settings(base: Mapping[str, Any], parameters: GenerationParameters) -> dict[str, Any]:
    """Return what a prompt asks for, without what does nothing.

    Args:
        base: the values of the checkpoint's generation config.
        parameters: those of the prompt, which take precedence.
    """
    defaults = {name: spec.default for name, spec in CHOOSING.items() if spec.default is not None}
    given = {**defaults, **base, **parameters.for_generate, **parameters.for_kit}
    does_something = {
        None: True,
        "do_sample": bool(given.get("do_sample")),
        "num_beams": given.get("num_beams", 1) > 1,
    }
    return {name: each for name, each in given.items() if does_something[CHOOSING[name].needs]}


def settings_of_checkpoint(base: GenerationConfig, does: Does, engine: str) -> dict[str, Any]:
    """Return the values of a checkpoint's generation config that an engine knows.

    Args:
        base: the checkpoint's generation config.
        does: whether the engine does a parameter.
        engine: the keys of the YAML that select the engine, for the error message.

    Raises:
        WrongCheckpoint: it has one that the engine would ignore.
    """
    given = {name: value for name, value in base.to_dict().items() if value is not None}
    lacking = {name: spec.neutral for name, spec in lacking_parameters(does).items()}
    lacking |= {name: setting.neutral for name, setting in SETTINGS_OF_FILE.items()}
    unknown = [name for name, neutral in lacking.items() if given.get(name, neutral) != neutral]
    if unknown:
        raise WrongCheckpoint(
            "generation_config.json",
            f"has {unknown[0]}, which {engine} cannot do",
            "remove it there, or leave continuousBatching out",
        )
    return {name: given[name] for name, spec in CHOOSING.items() if does(spec) and name in given}
