"""Checks that transformers has the model that a checkpoint was made for, with the head of its mode.

transformers initializes a missing head with random weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from inspect import signature
from typing import Any

import torch

# First, since it imports transformers without what transformers does not need.
from ..compat.transformers import has_model, missing_package, model_classes  # isort: skip
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import WrongCheckpoint, summarize

# The auto classes of models without a head, which are a part of every model of their type, and of
# the encoders of models that have a decoder as well.
BASE, ENCODER = BASES = ("AutoModel", "AutoModelForTextEncoding")
# The auto class of classifiers of images, some of which read a text as well.
OF_IMAGES = "AutoModelForImageClassification"
# How the names of these encoders end.
ENCODER_SUFFIX = "EncoderModel"
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
# Models of queries and of the images of pages, which `late_interaction` compares.
FAMILIES_OF_PAGES = ("colmodernvbert", "colpali", "colqwen2")
# Keys of configs with a number of layers; the largest models have about 130.
LAYER_COUNTS = re.compile("layers$|^n_layer$|depths?$")
MAX_LAYERS = 1_000
# Decoders by their other modes, which read in both directions.
BOTH_DIRECTIONS = ("xlnet",)


def check_values(values: Any, name: str) -> None:
    """Check what a config may say before transformers reads it.

    Args:
        values: the content of the config.
        name: the name of its file, for errors.

    Raises:
        WrongCheckpoint: it has too many layers, or its architectures are no names.
    """
    _check_layers(values, name)
    _check_architectures(values, name)


def _check_layers(values: Any, name: str) -> None:
    """Check that the values of a config have no count of layers that takes forever to build."""
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        _check_layers(value, name)
        counts = value if isinstance(value, list) else [value]
        most = max((each for each in counts if isinstance(each, int)), default=0)
        if LAYER_COUNTS.search(key) and most > MAX_LAYERS:
            raise WrongCheckpoint(
                name,
                f"has {key}: {most:,}, and a model may have {MAX_LAYERS:,} layers",
                f"correct {name}",
            )


def _check_architectures(values: Any, name: str) -> None:
    """Check that the architectures of a config are names; not every transformers does."""
    given = values.get("architectures") if isinstance(values, dict) else None
    is_list = isinstance(given, list) and all(isinstance(each, str) for each in given)
    if given is not None and not is_list:
        raise WrongCheckpoint(
            name,
            f"has architectures: {quote(given)}, which are no list of names",
            f"correct {name}",
        )


def check_head(config: PreTrainedConfig, handler: HandlerSection, auto_class_name: str) -> None:
    """Check that the architecture and labels of a checkpoint match the YAML.

    Only the config is needed, so a mistake is reported before weights are downloaded or loaded.

    Raises:
        WrongCheckpoint: the auto class does not support the model type, or, unless the YAML sets
            `allow_random_head` or `adapters`, the head or the number of labels differs.
    """
    checkpoint = handler.model_name or config.name_or_path or "the checkpoint"
    required = _class_name(config, auto_class_name, checkpoint)
    if auto_class_name in BASES:
        _check_reads_alone(config, checkpoint)
    if auto_class_name == OF_IMAGES:
        _check_reads_images_alone(config, checkpoint)
    if handler.may_lack_head or auto_class_name in BASES:
        return
    _check_architecture(config, required, checkpoint)
    if auto_class_name.endswith("Classification"):
        _check_labels(config, handler.num_labels, checkpoint)


def base_class_for(config: PreTrainedConfig) -> str:
    """Return the auto class of the model without a head that reads a text.

    Of T5 and its kind, it is the encoder, as in sentence-transformers.

    Raises:
        WrongCheckpoint: a text alone is not all of the model's input: it reads images or sounds as
            well, or its decoder a second text.
    """
    _check_reads_texts(config)
    names = (each.__name__ for each in model_classes(ENCODER, config))
    if any(name.endswith(ENCODER_SUFFIX) for name in names):
        return ENCODER
    _check_runs_on_text(config)
    return BASE


def _check_reads_texts(config: PreTrainedConfig) -> None:
    family, others = config.model_type, "images"
    if family in FAMILIES_OF_PAGES:
        remedy = "use mode: late_interaction"
    elif has_model("AutoModelForZeroShotImageClassification", config):
        remedy = "use mode: multimodal_embedding"
    elif has_model("AutoModelForImageTextToText", config) and hasattr(config, "vision_config"):
        pages = ", ".join(FAMILIES_OF_PAGES)
        remedy = (
            "use mode: image_text_to_text, or for vectors a checkpoint whose model_type in"
            f" config.json is one of {pages}, for mode late_interaction"
        )
    elif hasattr(config, "text_config") and hasattr(config, "audio_config"):
        others, remedy = "sounds", "use a checkpoint that reads texts alone"
    else:
        return
    raise WrongCheckpoint(
        "config.json",
        f"is of a {family} model, which reads texts and {others}, and this mode reads texts",
        remedy,
    )


def _check_runs_on_text(config: PreTrainedConfig) -> None:
    family = config.model_type
    for kind in model_classes(BASE, config):
        if "input_ids" not in signature(kind.forward).parameters:
            raise WrongCheckpoint(
                "config.json",
                f"is of a {family} model, which does not read the tokens of a text",
                "use a checkpoint that reads texts",
            )
        if config.is_encoder_decoder and _decoder_needs_text(kind, config):
            raise WrongCheckpoint(
                "config.json",
                f"is of a {family} model, whose decoder reads a second text",
                "use its mode (translation, summarization or text2text_generation), or for vectors"
                " an encoder",
            )


def _decoder_needs_text(kind: type[PreTrainedModel], config: PreTrainedConfig) -> bool:
    """Return whether a model does not run with the text of its encoder alone.

    It runs on the meta device, without weights. A model such as BART makes the decoder's text from
    the encoder's, and fails later, at the first value that it reads.
    """
    try:
        with torch.device("meta"):
            kind(config).eval()(input_ids=torch.ones(1, 3, dtype=torch.long))
    except ValueError:
        return True
    except Exception:  # noqa: BLE001 - each family reads values in its own way
        return False
    return False


def is_encoder(module: PreTrainedModel) -> bool:
    """Return whether a model is the encoder alone of one that has a decoder as well."""
    kind = type(module)
    return kind.__name__.endswith(ENCODER_SUFFIX) and kind in model_classes(ENCODER, module.config)


def _class_name(config: PreTrainedConfig, auto_class_name: str, checkpoint: str) -> str:
    """Return the model class of an auto class; building it on the meta device needs no memory."""
    auto_class = getattr(transformers, auto_class_name)
    try:
        with torch.device("meta"):
            model = auto_class.from_config(deepcopy(config), trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - each family reads values in its own way
        if has_model(auto_class_name, config) and not isinstance(error, ImportError):
            raise WrongCheckpoint(
                checkpoint,
                f"is a {config.model_type} model, which cannot be built with the values of its"
                f" config.json ({type(error).__name__}: {summarize(error, 150)})",
                "correct config.json: a value is missing, or of another type",
            ) from None
        remedy = "use a checkpoint whose model type transformers supports for this mode"
        raise WrongCheckpoint(
            checkpoint,
            f"is a {config.model_type} model, which {auto_class_name} does not support"
            f" ({summarize(error, 150)})",
            install_remedy(error) or remedy,
        ) from None
    return type(model).__name__


def install_remedy(error: BaseException) -> str | None:
    """Return how to install the package that transformers lacks; None for other errors."""
    package = missing_package(error)
    return f"pip install {package} in the environment of the worker" if package else None


def _check_reads_alone(config: PreTrainedConfig, checkpoint: str) -> None:
    """Check that a model without a head does not need a text and an image together."""
    if has_model("AutoModelForZeroShotImageClassification", config):
        raise WrongCheckpoint(
            checkpoint,
            f"is a {config.model_type} model, which reads texts and images",
            "use mode: multimodal_embedding for its vectors, or zero_shot_image_classification",
        )


def _check_reads_images_alone(config: PreTrainedConfig, checkpoint: str) -> None:
    """Check that a classifier of images does not read a text with each of them."""
    forwards = (signature(kind.forward).parameters for kind in model_classes(OF_IMAGES, config))
    # ImageGPT calls its pixels `input_ids`.
    if any({"input_ids", "pixel_values"} <= parameters.keys() for parameters in forwards):
        raise WrongCheckpoint(
            checkpoint,
            f"is a {config.model_type} model, which reads a text with each image, and this mode"
            " reads images",
            "use a checkpoint that reads images alone",
        )


def _check_architecture(config: PreTrainedConfig, required: str, checkpoint: str) -> None:
    architectures = config.architectures or []
    if architectures and required not in architectures:
        raise WrongCheckpoint(
            checkpoint,
            f"has a {' and a '.join(architectures)}, and this mode"
            f" needs a {required}, so its head would be random",
            "use a checkpoint that was fine-tuned for this mode, or set"
            " handler.allow_random_head: true",
        )


def _check_labels(config: PreTrainedConfig, num_labels: int | None, checkpoint: str) -> None:
    if num_labels not in (None, config.num_labels):
        raise WrongCheckpoint(
            checkpoint,
            f"has {config.num_labels} labels and handler.num_labels is {num_labels}",
            f"leave num_labels out or make it {config.num_labels}; for a new head with random"
            " weights set handler.allow_random_head: true",
        )


def check_computation(config: PreTrainedConfig, auto_class: str, checkpoint: str) -> None:
    """Check that transformers computes what a checkpoint is made for.

    A repository with its own code names its classes in `auto_map` of `config.json`. This kit
    never runs that code. transformers' own class computes the same only where it was made from that
    code:

    - The code has a config class as well as the model class, because transformers had neither.
    - Both have the names that they have in transformers.
    - transformers has the model type from that code, and did not have it before. Modified copies
      of the types in `KNOWN_BEFORE` have the names of the originals, too.

    Falcon, Phi-3, DeepSeek-V3 and Nomic BERT are such checkpoints. gte-Qwen2 is none: its Qwen2
    attends in both directions, in some revisions. Entries of classes that the mode does not load
    change nothing.

    Raises:
        WrongCheckpoint: it has its own code, or is a decoder that attends in both directions, and
            the mode needs a head.
    """
    loaded = BASE if auto_class == ENCODER else auto_class
    named = _own_classes(config).get(loaded)
    if named and not _is_made_from(config, loaded, named):
        raise WrongCheckpoint(
            checkpoint,
            f"has code of its own for {loaded} ({named:.120} in auto_map of config.json), which"
            f" this kit does not run, and transformers' {config.model_type} may compute something"
            " else",
            _remedy_for_code(config, loaded),
        )
    if attends_both_ways(config) and loaded != BASE:
        raise WrongCheckpoint(
            checkpoint,
            f"is a {config.model_type} that attends in both directions (is_causal: false in"
            f" config.json), which this kit serves for vectors alone, and not as {loaded}",
            "serve it with mode: sentence_embedding, or use another checkpoint",
        )


def _remedy_for_code(config: PreTrainedConfig, auto_class: str) -> str:
    if is_decoder(config) and auto_class == BASE:
        return (
            "use a checkpoint without such code; or remove auto_map from config.json in a local"
            " copy, and add is_causal: false there if that code attends in both directions, as in"
            " gte-Qwen2-7B-instruct"
        )
    return (
        "use a checkpoint without such code; if you know that both compute the same, remove"
        " auto_map from config.json in a local copy"
    )


def attends_both_ways(config: PreTrainedConfig) -> bool:
    """Return whether a decoder attends in both directions: `is_causal: false` in its config.

    transformers and vLLM read the key.
    """
    return is_decoder(config) and getattr(config, "is_causal", True) is False


def is_decoder(config: PreTrainedConfig) -> bool:
    """Return whether a model type is a causal language model."""
    reads_both_ways = (
        has_model("AutoModelForMaskedLM", config) or config.model_type in BOTH_DIRECTIONS
    )
    is_causal = has_model("AutoModelForCausalLM", config)
    return is_causal and not reads_both_ways and not config.is_encoder_decoder


def _own_classes(config: PreTrainedConfig) -> Mapping[str, str]:
    """Return the classes of a repository's own code by auto class."""
    classes: Any = getattr(config, "auto_map", None)
    pairs = classes.items() if isinstance(classes, Mapping) else ()
    return {name: each for name, each in pairs if isinstance(each, str)}


def _is_made_from(config: PreTrainedConfig, auto_class: str, named: str) -> bool:
    """Return whether transformers' classes were made from the classes of the repository."""
    own_config = _own_classes(config).get("AutoConfig", "")
    names = {_bare_name(each.__name__) for each in model_classes(auto_class, config)}
    has_names = _bare_name(own_config) == _bare_name(type(config).__name__)
    return config.model_type not in KNOWN_BEFORE and has_names and _bare_name(named) in names


def _bare_name(path: str) -> str:
    """Return the name of a class without its module, in lower case: MPTConfig is MptConfig."""
    return path.rpartition(".")[2].lower()


# Tokenizers without a limit have a model_max_length of 1e30.
UNLIMITED = 1_000_000
OFFSET_FAMILIES = re.compile(
    "roberta|camembert|longformer|mpnet|esm|data2vec-text|luke|ibert|xmod|layoutlmv3"
)


def position_limit(config: PreTrainedConfig) -> int | None:
    """Return the maximum number of tokens for which a model has positions; None for any number.

    XLNet, whose positions are relative, says -1.
    """
    positions = int(getattr(config.get_text_config(), "max_position_embeddings", None) or 0)
    return positions - first_position(config) if positions > 0 else None


def first_position(config: PreTrainedConfig) -> int:
    """Return the position id of the first token, which the RoBERTa family offsets.

    These models reserve the position ids up to the padding id.
    """
    return int(config.pad_token_id or 0) + 1 if OFFSET_FAMILIES.search(config.model_type) else 0
