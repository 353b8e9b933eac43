"""What a checkpoint's generation_config.json sets for every text, within the bounds of requests.

`generate` takes each value that a request does not set from there: thousands of beams take the
memory and the time of a request that asks for thousands, and other values make it fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from handlers.config.quoting import quote
from handlers.errors import WrongCheckpoint

FILE = "generation_config.json"
MAX_INT = 2**31 - 1
# The smallest and the largest value, as the parameters of a request have them.
RANGES: Mapping[str, tuple[float, float]] = {
    "num_beams": (1, 32),
    "num_return_sequences": (1, 32),
    "max_new_tokens": (1, MAX_INT),
    "max_length": (1, MAX_INT),
    "min_new_tokens": (0, MAX_INT),
    "min_length": (0, MAX_INT),
    "repetition_penalty": (0.01, 100),
    "encoder_repetition_penalty": (0.01, 100),
    "no_repeat_ngram_size": (0, MAX_INT),
    "encoder_no_repeat_ngram_size": (0, MAX_INT),
    "length_penalty": (-20, 20),
    "guidance_scale": (0, 100),
    "prefill_chunk_size": (1, MAX_INT),
    "top_h": (1e-6, 1),
}
SAMPLING_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (1e-6, 1e6),
    "top_k": (0, MAX_INT),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "typical_p": (1e-6, 1),
    "epsilon_cutoff": (0, 1),
    "eta_cutoff": (0, 1),
}
# The values of sampling that change nothing, or those of `generate` itself.
UNSET: Mapping[str, float] = {
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
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
    for name, (least, most) in RANGES.items():
        _check_range(name, getattr(base, name, None), least, most)
    for name, (least, most) in SAMPLING_RANGES.items():
        value = getattr(base, name, None)
        if base.do_sample:
            _check_range(name, value, least, most)
        elif value is not None and not _is_within(value, least, most):
            setattr(base, name, UNSET[name])
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


def _check_range(name: str, value: Any, least: float, most: float) -> None:
    if value is None or _is_within(value, least, most):
        return
    raise WrongCheckpoint(
        FILE,
        f"has {name} {quote(value)}, and requests may have {least:g} to {most:,}",
        "correct it there, or remove it",
    )


def _is_within(value: Any, least: float, most: float) -> bool:
    return isinstance(value, int | float) and least <= value <= most


def _is_pair_of_numbers(value: Any) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(isinstance(each, int | float) for each in value)
