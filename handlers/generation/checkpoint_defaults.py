"""What a checkpoint's generation_config.json sets for every text, within the bounds of requests.

`generate` takes each value that a request does not set from there: thousands of beams take the
memory and the time of a request that asks for thousands, and other values make it fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from handlers.config.messages import quote
from handlers.errors import WrongCheckpoint
from handlers.generation.parameter_spec import bounds_of, specs_of
from handlers.generation.parameters import SamplingParameters

FILE = "generation_config.json"
MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class Setting:
    """A value of the file.

    Attributes:
        neutral: the value that does nothing; None where only its absence does.
        bounds: the smallest and the largest value; None for what is no number.
        needs: the parameter without which it does nothing.
    """

    neutral: Any = None
    bounds: tuple[float, float] | None = None
    needs: str | None = None


# What no request may set.
SETTINGS_OF_FILE: Mapping[str, Setting] = {
    "min_length": Setting(0, (0, MAX_INT)),
    "encoder_repetition_penalty": Setting(1.0, (0.01, 100)),
    "encoder_no_repeat_ngram_size": Setting(0, (0, MAX_INT)),
    "guidance_scale": Setting(1, (0, 100)),
    "epsilon_cutoff": Setting(0.0, (0, 1), needs="do_sample"),
    "eta_cutoff": Setting(0.0, (0, 1), needs="do_sample"),
    "top_h": Setting(None, (1e-6, 1)),
    "bad_words_ids": Setting(),
    "begin_suppress_tokens": Setting(),
    "exponential_decay_length_penalty": Setting(),
    "forced_bos_token_id": Setting(),
    "forced_eos_token_id": Setting(),
    "sequence_bias": Setting(),
    "suppress_tokens": Setting(),
    "watermarking_config": Setting(),
}
# What requests may set has the same bounds in the file.
SETTINGS: Mapping[str, Setting] = {
    **{
        name: Setting(spec.default or spec.neutral, bounds_of(SamplingParameters)[name], spec.needs)
        for name, spec in specs_of(SamplingParameters).items()
        if spec.transformers == "generate" and name in bounds_of(SamplingParameters)
    },
    **SETTINGS_OF_FILE,
    "max_new_tokens": Setting(None, (1, MAX_INT)),
    "max_length": Setting(None, (1, MAX_INT)),
    "prefill_chunk_size": Setting(None, (1, MAX_INT)),
}
# What needs the tokenizer in `generate`, or code on the hub, and the values that change nothing.
NOT_DONE: Mapping[str, tuple[Any, ...]] = {
    "stop_strings": ([],),
    "token_healing": (False,),
    "constraints": ([],),
    "force_words_ids": ([],),
    "dola_layers": (),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "assistant_early_exit": (),
    "is_assistant": (False,),
    "penalty_alpha": (0,),
    # Texts would be cut, without a reason in the answer; a request has the deadline of the server.
    "max_time": (),
    # A request may set it; that of the file would apply to texts that are not followed so.
    "prompt_lookup_num_tokens": (),
}


def _one_or_many(value: Any) -> Iterable[Any]:
    return [value] if isinstance(value, int) else value


def _biased(value: Any) -> Iterable[Any]:
    pairs = value.items() if isinstance(value, Mapping) else value
    return chain.from_iterable(tokens for tokens, _ in pairs)


# The token ids in a value.
TOKEN_IDS: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "decoder_start_token_id": _one_or_many,
    "eos_token_id": _one_or_many,
    "forced_bos_token_id": _one_or_many,
    "forced_eos_token_id": _one_or_many,
    "suppress_tokens": list,
    "begin_suppress_tokens": list,
    "bad_words_ids": chain.from_iterable,
    "sequence_bias": _biased,
}
# vLLM's `top_k` of all tokens, which is 0 in `generate`.
ALL_TOKENS = -1
# What `generate` returns beside the tokens.
RETURNED = (
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
)


def with_checked_defaults(base: GenerationConfig, config: PreTrainedConfig) -> GenerationConfig:
    """Return a checkpoint's generation config, where its values are ones that a request may have.

    Values of sampling that it does not use itself are replaced by those of `generate`.

    Args:
        base: the generation config.
        config: the config of the model, which has the size of the vocabulary.

    Raises:
        WrongCheckpoint: it has another value.
    """
    _check_supported(base)
    _check_token_ids(base, config)
    if base.top_k == ALL_TOKENS:
        base.top_k = 0
    if isinstance(base.max_length, int | float) and base.max_length > MAX_INT:
        base.max_length = None  # It stands for no limit.
    for name, setting in SETTINGS.items():
        _check_bounds(base, name, setting)
    for name in RETURNED:
        setattr(base, name, False)
    return base


def check_beams(base: GenerationConfig, max_sequences: int) -> None:
    """Check the beams of answers, whose number no request sets.

    Raises:
        WrongCheckpoint: there are more than `max_sequences` of the YAML.
    """
    beams = base.num_beams or 1
    if beams > max_sequences:
        raise WrongCheckpoint(
            FILE,
            f"has num_beams {beams}, and max_sequences of the YAML is {max_sequences}",
            "lower the first or raise the second",
        )


def _check_supported(base: GenerationConfig) -> None:
    for name, neutral in NOT_DONE.items():
        value = getattr(base, name, None)
        if value is not None and value not in neutral:
            raise WrongCheckpoint(
                FILE, f"has {name}, which this server cannot do", "remove it there"
            )
    decay = base.exponential_decay_length_penalty
    if decay is not None and not _is_pair_of_numbers(decay):
        raise WrongCheckpoint(
            FILE,
            f"has exponential_decay_length_penalty {quote(decay)}",
            "make it a list of a number of tokens and a factor, or remove it",
        )


def _check_token_ids(base: GenerationConfig, config: PreTrainedConfig) -> None:
    """Check that all tokens that a generation config names are in the vocabulary.

    Raises:
        WrongCheckpoint: with the first that is not.
    """
    vocabulary = getattr(config.get_text_config(decoder=True), "vocab_size", MAX_INT)
    for name, read in TOKEN_IDS.items():
        value = getattr(base, name, None)
        unknown = [] if value is None else _unknown_tokens(value, read, vocabulary)
        if unknown:
            raise WrongCheckpoint(
                FILE,
                f"has {name} with {quote(unknown[0])}, and this model's tokens go from 0 to"
                f" {vocabulary - 1:,}",
                "correct it there, or remove it",
            )


def _unknown_tokens(
    value: Any, read: Callable[[Any], Iterable[Any]], vocabulary: int
) -> Sequence[Any]:
    """Return what is no token id in a value; all of it where it has another form."""
    try:
        tokens = list(read(value))
    except (TypeError, ValueError):
        return [value]
    return [each for each in tokens if not isinstance(each, int) or not 0 <= each < vocabulary]


def _check_bounds(base: GenerationConfig, name: str, setting: Setting) -> None:
    """Check a value of a generation config; replace it where it does nothing.

    Raises:
        WrongCheckpoint: no request may have it.
    """
    value = getattr(base, name, None)
    if setting.bounds is None or value is None or _is_within(value, *setting.bounds):
        return
    if setting.needs == "do_sample" and not base.do_sample:
        setattr(base, name, setting.neutral)
        return
    least, most = setting.bounds
    allowed = f"{least:g} or more" if math.isinf(most) else f"{least:g} to {most:,}"
    raise WrongCheckpoint(
        FILE,
        f"has {name} {quote(value)}, and requests may have {allowed}",
        "correct it there, or remove it",
    )


def _is_within(value: Any, least: float, most: float) -> bool:
    return isinstance(value, int | float) and least <= value <= most


def _is_pair_of_numbers(value: Any) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(isinstance(each, int | float) for each in value)
