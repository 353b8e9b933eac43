"""What a checkpoint's generation_config.json sets for every text, within the bounds of requests.

`generate` takes each value that a request does not set from there: thousands of beams take the
memory and the time of a request that asks for thousands, and other values make it fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig

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
    # A request may set it; that of the file would apply to texts that are not followed so.
    "prompt_lookup_num_tokens": (),
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


def with_checked_defaults(base: GenerationConfig) -> GenerationConfig:
    """Return a checkpoint's generation config, where its values are ones that a request may have.

    Values of sampling that it does not use itself are replaced by those of `generate`.

    Raises:
        WrongCheckpoint: it has another value.
    """
    for name, neutral in NOT_DONE.items():
        value = getattr(base, name, None)
        if value is not None and value not in neutral:
            raise WrongCheckpoint(
                FILE, f"has {name}, which this server cannot do", "remove it there"
            )
    if base.top_k == ALL_TOKENS:
        base.top_k = 0
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
