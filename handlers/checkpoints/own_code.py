"""Checkpoints that compute something else than the class of transformers that would load them.

A repository with code of its own names its classes in `auto_map` of `config.json`. This kit never
runs that code. transformers' own class computes the same only where it was made from that code:

- The code has a config class as well as the model class, because transformers had neither.
- Both have the names that they have in transformers.
- transformers has the model type from that code, and did not have it before. Modified copies of
  the types in `KNOWN_BEFORE` have the names of the originals, too.

Falcon, Phi-3, DeepSeek-V3 and Nomic BERT are such checkpoints. gte-Qwen2 is none: its Qwen2 attends
in both directions. Entries of classes that the mode does not load change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from handlers.checkpoints.heads import BASE, ENCODER
from handlers.compat.transformers import has_model, model_classes
from handlers.errors import WrongCheckpoint

# Model types that were published in transformers itself. Repositories have modified copies.
KNOWN_BEFORE = frozenset(
    [
        *("albert", "bart", "bert", "bigbird_pegasus", "big_bird", "bloom", "camembert", "clip"),
        *("deberta", "deberta-v2", "distilbert", "electra", "esm", "gemma", "gemma2", "gemma3"),
        *("gemma3_text", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "llava", "longformer"),
        *("m2m_100", "marian", "mbart", "mistral", "mixtral", "modernbert", "mpnet", "mt5", "opt"),
        *("pegasus", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe"),
        *("qwen3_vl", "roberta", "roformer", "siglip", "t5", "vit", "wav2vec2", "whisper"),
        *("xlm-roberta", "xlm-roberta-xl", "xlnet"),
    ]
)
# Decoders by their other modes, which read in both directions.
BOTH_DIRECTIONS = ("xlnet",)


def check_computation(config: PreTrainedConfig, auto_class: str, checkpoint: str) -> None:
    """Check that transformers computes what a checkpoint is made for.

    Args:
        config: its config.
        auto_class: the auto class that loads it.
        checkpoint: its name, for errors.

    Raises:
        WrongCheckpoint: it has code of its own, or attends in both directions.
    """
    loaded = BASE if auto_class == ENCODER else auto_class
    named = _classes(config).get(loaded)
    if named and not _is_made_from(config, loaded, named):
        raise WrongCheckpoint(
            checkpoint,
            f"has code of its own for {loaded} ({named:.120} in auto_map of config.json), which"
            f" this kit does not run, and transformers' {config.model_type} may compute something"
            " else",
            "use a checkpoint without such code; if you know that both compute the same, remove"
            " auto_map from config.json in a local copy",
        )
    if is_decoder(config) and getattr(config, "is_causal", True) is False:
        raise WrongCheckpoint(
            checkpoint,
            f"is a {config.model_type} that attends in both directions (is_causal: false in"
            " config.json), which this kit does not serve",
            "use a checkpoint whose model type has such attention",
        )


def is_decoder(config: PreTrainedConfig) -> bool:
    """Return whether a model type is that of causal language models."""
    reads_both_ways = (
        has_model("AutoModelForMaskedLM", config) or config.model_type in BOTH_DIRECTIONS
    )
    is_causal = has_model("AutoModelForCausalLM", config)
    return is_causal and not reads_both_ways and not config.is_encoder_decoder


def _classes(config: PreTrainedConfig) -> Mapping[str, str]:
    """Return the classes of a repository's own code by auto class."""
    classes: Any = getattr(config, "auto_map", None)
    pairs = classes.items() if isinstance(classes, Mapping) else ()
    return {name: each for name, each in pairs if isinstance(each, str)}


def _is_made_from(config: PreTrainedConfig, auto_class: str, named: str) -> bool:
    """Return whether transformers' classes were made from those of the repository."""
    own_config = _classes(config).get("AutoConfig", "")
    names = {_class_name(each.__name__) for each in model_classes(auto_class, config)}
    has_names = _class_name(own_config) == _class_name(type(config).__name__)
    return config.model_type not in KNOWN_BEFORE and has_names and _class_name(named) in names


def _class_name(path: str) -> str:
    """Return the name of a class without its module, in lower case: MPTConfig is MptConfig."""
    return path.rpartition(".")[2].lower()
