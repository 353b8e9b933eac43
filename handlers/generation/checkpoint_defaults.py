"""What a checkpoint's generation_config.json sets for every text, within the bounds of requests.

`generate` takes each value that a request does not set from there: thousands of beams take the
memory and the time of a request that asks for thousands, and other values make every request fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedConfig, SequenceBiasLogitsProcessor

from ..config.messages import quote
from ..errors import WrongCheckpoint, summarize
from ..process.packages import is_installed
from .parameters import Bounds, SamplingParameters, bounds_of, specs_of

FILE = "generation_config.json"
MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class Setting:
    """A value of the file.

    Attributes:
        neutral: the value without an effect; None where only the absence of a value has none.
        bounds: the bounds of a number; None for another value.
        needs: the parameter without which it has no effect.
    """

    neutral: Any = None
    bounds: Bounds | None = None
    needs: str | None = None


COUNT = Bounds(0, MAX_INT, is_integer=True)
POSITIVE = Bounds(1, MAX_INT, is_integer=True)
# What no request may set.
FILE_SETTINGS: Mapping[str, Setting] = {
    "min_length": Setting(0, COUNT),
    "encoder_repetition_penalty": Setting(1.0, Bounds(0.01, 100)),
    "encoder_no_repeat_ngram_size": Setting(0, COUNT),
    "guidance_scale": Setting(1, Bounds(0, 100)),
    "epsilon_cutoff": Setting(0.0, Bounds(0, 1), needs="do_sample"),
    "eta_cutoff": Setting(0.0, Bounds(0, 1), needs="do_sample"),
    "top_h": Setting(None, Bounds(1e-6, 1)),
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
    **FILE_SETTINGS,
    "max_new_tokens": Setting(None, POSITIVE),
    "max_length": Setting(None, POSITIVE),
    "prefill_chunk_size": Setting(None, POSITIVE),
}
# What needs the tokenizer in `generate`, or code on the hub, and the values without an effect.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
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
    "low_memory": (False,),
    # Texts would be cut, without a reason in the answer; a request has the deadline of the server.
    "max_time": (),
    # A request may set it; the file's value would apply to texts whose tokens must be certain.
    "prompt_lookup_num_tokens": (),
}


def _one_or_many(value: Any) -> list[Any]:
    return [[value] if isinstance(value, int) else value]


def _biased(value: Any) -> list[Any]:
    return [tokens for tokens, _ in (value.items() if isinstance(value, Mapping) else value)]


# The sequences of token ids in a value.
TOKEN_IDS: Mapping[str, Callable[[Any], Sequence[Any]]] = {
    "bos_token_id": _one_or_many,
    "decoder_start_token_id": _one_or_many,
    "eos_token_id": _one_or_many,
    "forced_bos_token_id": _one_or_many,
    "forced_eos_token_id": _one_or_many,
    "suppress_tokens": lambda value: [value],
    "begin_suppress_tokens": lambda value: [value],
    "bad_words_ids": list,
    "sequence_bias": _biased,
}
# `generate` fails where one of these has no tokens.
NEVER_EMPTY = ("forced_eos_token_id", "bad_words_ids", "sequence_bias")
# vLLM's `top_k` of all tokens, which is 0 in `generate`.
ALL_TOKENS = -1
# The outputs of `generate` other than tokens.
RETURNED = (
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
)
# The packages and modules of quantized caches, by `backend` of `cache_config`.
QUANTIZED_CACHES: Mapping[str, tuple[str, str]] = {
    "quanto": ("optimum-quanto", "optimum.quanto"),
    "hqq": ("hqq", "hqq"),
}


def with_checked_defaults(base: GenerationConfig, config: PreTrainedConfig) -> GenerationConfig:
    """Return a checkpoint's generation config, where its values are ones that a request may have.

    Values of sampling that are not in effect are replaced by the defaults of `generate`.

    Args:
        base: the generation config.
        config: the config of the model, which has the size of the vocabulary.

    Raises:
        WrongCheckpoint: it has another value, or `generate` would fail for every request.
    """
    _check_supported(base)
    _check_token_ids(base, config)
    _check_cache(base, config)
    if base.top_k == ALL_TOKENS:
        base.top_k = 0
    if isinstance(base.max_length, int | float) and base.max_length > MAX_INT:
        base.max_length = None  # It stands for no limit.
    for name, setting in SETTINGS.items():
        _check_bounds(base, name, setting)
    _check_start_token(base, config)
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
    for name, neutral in UNSUPPORTED.items():
        value = getattr(base, name, None)
        if value is not None and value not in neutral:
            raise WrongCheckpoint(
                FILE, f"has {name}, which is not supported by this server", "remove it there"
            )
    decay = base.exponential_decay_length_penalty
    if decay is not None and not _is_pair_of_numbers(decay):
        raise WrongCheckpoint(
            FILE,
            f"has exponential_decay_length_penalty {quote(decay)}",
            "make it a list of a number of tokens and a factor, or remove it",
        )


def _check_start_token(base: GenerationConfig, config: PreTrainedConfig) -> None:
    if not config.is_encoder_decoder or base.decoder_start_token_id is not None:
        return
    if base.bos_token_id is None:
        raise WrongCheckpoint(
            FILE,
            "has neither decoder_start_token_id nor bos_token_id, and the decoder begins with one"
            " of them",
            "add the decoder_start_token_id that the checkpoint was trained with",
        )


def _check_token_ids(base: GenerationConfig, config: PreTrainedConfig) -> None:
    """Check that the file names tokens of the vocabulary, where `generate` uses them."""
    vocabulary = getattr(config.get_text_config(decoder=True), "vocab_size", MAX_INT)
    starts_with_bos = config.is_encoder_decoder and base.decoder_start_token_id is None
    for name, read in TOKEN_IDS.items():
        value = getattr(base, name, None)
        if value is None:
            continue
        # Many decoders have another model's `bos_token_id`, which they do not use.
        limit = MAX_INT if name == "bos_token_id" and not starts_with_bos else vocabulary
        unknown, is_empty = _unknown_tokens(value, read, limit)
        if unknown:
            raise WrongCheckpoint(
                FILE,
                f"has {name} with {quote(unknown[0])}, and this model's tokens go from 0 to"
                f" {vocabulary - 1:,}",
                "correct it there, or remove it",
            )
        if is_empty and name in NEVER_EMPTY:
            raise WrongCheckpoint(FILE, f"has {name} without tokens", "remove it there")
    if base.sequence_bias is not None:
        try:
            SequenceBiasLogitsProcessor(base.sequence_bias)
        except (ValueError, TypeError) as error:
            problem = f"has a sequence_bias that transformers refuses ({summarize(error)})"
            raise WrongCheckpoint(FILE, problem, "correct it there, or remove it") from None


def _unknown_tokens(
    value: Any, read: Callable[[Any], Sequence[Any]], vocabulary: int
) -> tuple[Sequence[Any], bool]:
    """Return what is no token id in a value, and whether a sequence of tokens is empty.

    A value of another form is returned as it is.
    """
    try:
        sequences = [list(tokens) for tokens in read(value)]
    except (TypeError, ValueError):
        return [value], False
    tokens = [token for sequence in sequences for token in sequence]
    unknown = [each for each in tokens if not isinstance(each, int) or not 0 <= each < vocabulary]
    return unknown, not sequences or not all(sequences)


def _check_cache(base: GenerationConfig, config: PreTrainedConfig) -> None:
    """Check that this installation has the key-value cache that the file chooses."""
    name = base.cache_implementation
    if name is None or base.use_cache is False:
        return
    obstacle = None
    if "offloaded" in name and not torch.accelerator.is_available():
        obstacle = "needs a GPU"
    elif name == "quantized" and config.is_encoder_decoder:
        obstacle = "transformers does not support for encoder-decoders"
    elif name == "quantized":
        options = base.cache_config if isinstance(base.cache_config, dict) else {}
        backend = options.get("backend", "quanto")
        if backend not in QUANTIZED_CACHES:
            obstacle = f"has no backend {quote(backend)}"
        else:
            package, module = QUANTIZED_CACHES[backend]
            obstacle = None if is_installed(module) else f"needs the package {package}"
    if obstacle:
        raise WrongCheckpoint(
            FILE, f"has cache_implementation {quote(name)}, which {obstacle}", "remove it there"
        )


def _check_bounds(base: GenerationConfig, name: str, setting: Setting) -> None:
    """Check a number of a generation config; replace it where it has no effect."""
    value = getattr(base, name, None)
    if setting.bounds is None or value is None or setting.bounds.allow(value):
        return
    if setting.needs == "do_sample" and not base.do_sample:
        setattr(base, name, setting.neutral)
        return
    raise WrongCheckpoint(
        FILE,
        f"has {name} {quote(value)}, and requests may have {setting.bounds}",
        "correct it there, or remove it",
    )


def _is_pair_of_numbers(value: Any) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(isinstance(each, int | float) for each in value)
