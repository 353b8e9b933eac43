"""What is private or undocumented in transformers.

`transformers_whisper` has what takes long to import.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from packaging.version import Version

from .imports import without_scikit_learn

with without_scikit_learn():
    import transformers
    from transformers import (
        AttentionInterface,
        BaseVideoProcessor,
        DynamicCache,
        GenerationConfig,
        LogitsProcessor,
        LogitsProcessorList,
        PreTrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerFast,
        ProcessorMixin,
        masking_utils,
    )
    from transformers.cache_utils import DynamicLayer
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.requests import RequestStatus
    from transformers.generation.continuous_batching.scheduler import (
        SCHEDULER_MAPPING,
        FIFOScheduler,
    )
    from transformers.image_processing_utils import BaseImageProcessor
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.modeling_layers import GenericForSequenceClassification
    from transformers.models.auto.image_processing_auto import (
        IMAGE_PROCESSOR_MAPPING_NAMES,
        AutoImageProcessor,
    )
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
    from transformers.models.auto.tokenization_auto import (
        TOKENIZER_MAPPING_NAMES,
        tokenizer_class_from_name,
    )
    from transformers.models.mbart import tokenization_mbart
    from transformers.models.mbart50 import tokenization_mbart50
    from transformers.models.nllb import tokenization_nllb
    from transformers.models.whisper import tokenization_whisper
    from transformers.pytorch_utils import Conv1D
    from transformers.utils import PushToHubMixin, sentencepiece_model_pb2_new

# Attention

UNMASKED = "sdpa_without_masks"
INSTALL = re.compile(r"pip install ([\w.-]+)")
SPARSE, FULL = "block_sparse", "original_full"
AttentionInterface.register(UNMASKED, sdpa_attention_forward)


@contextmanager
def traceable_masks() -> Iterator[None]:
    """Let masks be traced whose length is a tensor without dimensions, as tracers have it.

    transformers 5.5 takes such a length for the positions of a cache. 5.6 has no such positions.

    Breaks when `sdpa_mask` has another name or place, or is called with a length by position.
    """
    if Version(transformers.__version__) >= Version("5.6"):
        yield
        return
    masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    make = masks["sdpa"]

    def mask(**given: Any) -> torch.Tensor | None:
        length = given["q_length"]
        if getattr(length, "ndim", None) == 0:
            given["q_length"] = torch.arange(length) + given.get("q_offset", 0)
        found: torch.Tensor | None = make(**given)
        return found

    # Not `masks["sdpa"] = mask`, which would hide what other libraries register later.
    masks.register("sdpa", mask)
    try:
        yield
    finally:
        masks.register("sdpa", make)


@contextmanager
def without_masks(config: PreTrainedConfig) -> Iterator[None]:
    """Have a model make no attention masks within the block.

    The code of transformers that makes masks cannot be traced, and makes none for an attention
    whose masks it does not know.

    Breaks when modules take their attention from elsewhere than `config._attn_implementation`, or
    make masks for an attention that has no function of masks.
    """
    name = config._attn_implementation
    with with_attention(config, UNMASKED if name == "sdpa" else name):
        yield


@contextmanager
def with_attention(config: PreTrainedConfig, name: str | None) -> Iterator[None]:
    """Have a model compute attention by a function of `AttentionInterface` within the block.

    The code of transformers makes no masks for an attention whose masks it does not know.

    Breaks when modules take their attention from elsewhere than `config._attn_implementation`, or
    make masks for an attention that has no function of masks.
    """
    given = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = given


@contextmanager
def same_attention(config: PreTrainedConfig) -> Iterator[None]:
    """Restore the attention of a model after the block.

    Whisper's `generate` changes it to compute the times of tokens, and does not change it back.

    Breaks when modules take their attention from elsewhere than `config._attn_implementation`.
    """
    given = config._attn_implementation
    try:
        yield
    finally:
        if config._attn_implementation != given:
            config._attn_implementation = given


def attend_both_ways(module: PreTrainedModel) -> None:
    """Have the attention of a decoder read in both directions, which its config says.

    The config alone leaves out the mask, and attention without a mask is causal by its attribute.

    Breaks when attention layers read another attribute than `is_causal`.
    """
    for layer in module.modules():
        if hasattr(layer, "is_causal"):
            layer.is_causal = False


def choose_attention_by_length(module: torch.nn.Module, short: int) -> None:
    """Have a BigBird choose its attention for each batch.

    A text that is too short for sparse attention changes the model of transformers to full
    attention for all later ones.

    Args:
        short: the tokens up to which a batch has full attention.

    Breaks when the attention of a layer is not its `self`, or `set_attention_type` is renamed.
    """
    parts: list[Any] = [
        each for each in module.modules() if getattr(each, "attention_type", None) == SPARSE
    ]
    layers = [each for each in parts if hasattr(each, "self")]
    kept = {SPARSE: [each.self for each in layers]}
    for each in layers:
        each.set_attention_type(FULL)
    kept[FULL] = [each.self for each in layers]

    def choose(_reader: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
        tokens = given.get("input_ids", args[0] if args else None)
        tokens = given["inputs_embeds"] if tokens is None else tokens
        kind = FULL if tokens.shape[1] <= short else SPARSE
        for part in parts:
            part.attention_type = kind
        for layer, attention in zip(layers, kept[kind], strict=True):
            layer.self = attention

    for part in parts:
        if hasattr(part, "create_masks_for_block_sparse_attn"):
            part.register_forward_pre_hook(choose, with_kwargs=True)


def need_no_state(module: PreTrainedModel) -> None:
    """Have a Granite 4 without a layer of Mamba ask its cache for no state of one.

    transformers 5.5 fails there, with the first token that it generates.

    Breaks when the mask of these layers is made by another method than `_update_mamba_mask`.
    """
    config = module.config
    has_mamba = "mamba" in (getattr(config, "layer_types", None) or ())
    if config.model_type == "granitemoehybrid" and not has_mamba:
        # A model with a head has the decoder in `base_model`.
        module.base_model._update_mamba_mask = lambda *_: None


def has_recurrent_state(module: PreTrainedModel) -> bool:
    """Return whether a model has a state from which tokens cannot be removed again, as Mamba has.

    Breaks when `generate` learns in another way than by `_is_stateful` that a model cannot be
    assisted.
    """
    return bool(module._is_stateful)


def can_be_repeated(cache: Any) -> bool:
    """Return whether the key-value cache of one row may be continued by several rows.

    All layers keep all tokens: a layer with a window may have dropped some.

    Breaks when a `DynamicCache` has no `layers`, or when its layers have other classes.
    """
    is_dynamic = isinstance(cache, DynamicCache)
    return is_dynamic and all(type(layer) is DynamicLayer for layer in cache.layers)


def continue_cache(cache: DynamicCache, mask: torch.Tensor) -> dict[str, Any]:
    """Return the arguments with which rows continue a key-value cache of one row.

    Args:
        cache: the cache, which is copied.
        mask: the attention mask of the rows, padded on the right.

    Breaks when a cache has no `batch_repeat_interleave`, or models take the mask in another form.
    """
    own = copy.deepcopy(cache)
    own.batch_repeat_interleave(len(mask))
    before = mask.new_ones(len(mask), cache.get_seq_length())
    return {"past_key_values": own, "attention_mask": torch.cat([before, mask], dim=1)}


def reads_last_token(module: PreTrainedModel) -> bool:
    """Return whether a head reads the last token of each text, as the heads of decoders do.

    Breaks when decoders for classification have another base class.
    """
    return isinstance(module, GenericForSequenceClassification)


def shortest_row(config: PreTrainedConfig) -> int:
    """Return the number of tokens below which a model fails, since it shortens its rows.

    CANINE makes one position of `downsampling_rate` characters. Funnel halves a row before each
    block but the first, without its first token, and needs more than one position in the last.

    Breaks when other families fail at short rows, or these name their sizes differently.
    """
    if config.model_type == "canine":
        return int(config.downsampling_rate)
    if config.model_type == "funnel" and len(config.block_sizes) > 1:
        halvings = (
            len(config.block_sizes) - 1 if config.separate_cls else len(config.block_sizes) - 2
        )
        odd = config.separate_cls and not config.truncate_seq and halvings > 1
        return int((3 * 2 ** (halvings - 1) if odd else 2**halvings) + 1)
    return 1


# Auto classes


def model_classes(auto_class: str, config: PreTrainedConfig) -> Sequence[type[PreTrainedModel]]:
    """Return the classes that an auto class has for a config.

    Breaks when auto classes have no `_model_mapping` from classes of configs.
    """
    found = getattr(transformers, auto_class)._model_mapping.get(type(config), ())
    return found if isinstance(found, tuple) else (found,)


def classifies_last_token(config: PreTrainedConfig) -> bool:
    """Return whether the classifier of a model type reads the last token of each text.

    Breaks when decoders for classification have another base class.
    """
    kinds = model_classes("AutoModelForSequenceClassification", config)
    return any(issubclass(each, GenericForSequenceClassification) for each in kinds)


def has_model(auto_class: str, config: PreTrainedConfig) -> bool:
    """Return whether an auto class has a class for a config.

    Breaks when auto classes have no `_model_mapping` from classes of configs.
    """
    return type(config) in getattr(transformers, auto_class)._model_mapping


def processor_class(config: PreTrainedConfig) -> type[ProcessorMixin] | None:
    """Return the processor class of a model type, None if it has none.

    Breaks when `PROCESSOR_MAPPING` is renamed.
    """
    return PROCESSOR_MAPPING.get(type(config), None)


def tokenizer_class(name: str | None, model_type: str) -> Any:
    """Return a tokenizer class by its name, or else of a model type; None if there is none.

    Breaks when `TOKENIZER_MAPPING_NAMES` has no names of classes any more.
    """
    name = name or TOKENIZER_MAPPING_NAMES.get(model_type)
    return tokenizer_class_from_name(name) if isinstance(name, str) else None


# generate


def default_settings(config: GenerationConfig) -> dict[str, Any]:
    """Return the values that `generate` has where neither its arguments nor the config has one.

    Breaks when `_get_default_generation_params` is renamed or takes arguments.
    """
    return dict(config._get_default_generation_params())


def run_before_other_processors(processor: LogitsProcessor) -> dict[str, Any]:
    """Return the arguments of `generate` with which a processor sees the logits of the model.

    The processors that `generate` takes run after its own ones, which have changed the logits.

    Breaks when `custom_generate` is not called with the processors as `logits_processor`, or
    `_sample` is not the loop of sampling and of greedy search any more.
    """

    def sample(
        model: Any, input_ids: torch.Tensor, logits_processor: LogitsProcessorList, **options: Any
    ) -> Any:
        processors = LogitsProcessorList([processor, *logits_processor])
        return model._sample(input_ids, logits_processor=processors, **options)

    return {"custom_generate": sample}


# Continuous batching

# The id of the manager where a model has no end token.
NO_END = -1
# The manager keeps one block for itself.
SPARE_BLOCKS = 1
SHORTEST_FIRST = "shortest_first"
# A prompt that has waited for a second is read as if it had this many tokens less.
TOKENS_PER_WAITED_SECOND = 1024


class ShortestFirst(FIFOScheduler):
    """A scheduler that reads the prompt with the fewest unread tokens first.

    Running texts come before all prompts, as in the base class. A long prompt takes what is left of
    a step, and comes first once it has waited long enough.

    The base class does not count cached tokens that a prompt shares with others. The step in which
    the prompt starts then has too few places for them, and the prompt becomes another text.

    Breaks when `_process_candidates` is renamed or returns the number of read tokens elsewhere than
    in its last place.
    """

    def _process_candidates(self, candidates: Sequence[Any], *args: Any, **options: Any) -> Any:
        now = time.perf_counter()
        ordered = sorted(candidates, key=lambda state: self._rank(state, now))
        scheduled, *others, _ = super()._process_candidates(ordered, *args, **options)
        return scheduled, *others, sum(each.state.current_len() for each in scheduled)

    def _rank(self, state: Any, now: float) -> tuple[bool, float]:
        if state.status == RequestStatus.DECODING:
            return False, 0.0
        waited = TOKENS_PER_WAITED_SECOND * (now - state.created_time)
        return True, len(state.remaining_prefill_tokens) - waited


SCHEDULER_MAPPING[SHORTEST_FIRST] = ShortestFirst


def create_manager(
    module: PreTrainedModel,
    ends: Sequence[int],
    *,
    block_size: int,
    blocks: int,
    max_batch_tokens: int,
    shares_blocks: bool = False,
) -> Any:
    """Return the manager of greedy texts of a model; it is not started.

    Args:
        module: the model, whose attention the manager changes.
        ends: the ids of the tokens that end a text.
        blocks: the number of blocks for texts.
        max_batch_tokens: the number of tokens of all texts in one step.
        shares_blocks: whether prompts that begin alike share blocks.

    Breaks when `ContinuousBatchingConfig` has other names, or the settings that are off here work.
    """
    return module.init_continuous_batching(
        GenerationConfig(do_sample=False, eos_token_id=list(ends) or [NO_END]),
        ContinuousBatchingConfig(
            block_size=block_size,
            num_blocks=blocks + SPARE_BLOCKS,
            max_batch_tokens=max_batch_tokens,
            allow_block_sharing=shares_blocks,
            scheduler_type=SHORTEST_FIRST,
            # It fails where the manager starts without a text.
            use_async_batching=False,
        ),
    )


def is_stopping(manager: Any) -> bool:
    """Return whether a manager takes no more texts.

    Breaks when the manager has neither the event of transformers 5.5 nor the status of 5.23.
    """
    status = getattr(manager, "background_thread_status", None)
    if status is None:
        return bool(manager.stop_event.is_set())
    return status.can_accept_new_requests() is not None


# Processors

FILE = "preprocessor_config.json"
ENDINGS = re.compile("ImageProcessor|FeatureExtractor")


def read_image_processor(directory: Path, **options: Any) -> BaseImageProcessor:
    """Return the image processor of a checkpoint.

    Without torchvision, transformers has processors of Pillow, and does not find all of them:
    transformers 5.5 lists Idefics3's and SegFormer's among five that seem to need torchvision. Its
    public `AutoImageProcessor` refuses without torchvision.

    Breaks when `AutoImageProcessor` of `image_processing_auto` refuses, too, or the processors of
    Pillow have other names.
    """
    try:
        return AutoImageProcessor.from_pretrained(directory, **options)
    except (ValueError, ImportError):
        settings = json.loads((directory / FILE).read_text(encoding="utf-8"))
        named = str(settings.get("image_processor_type") or settings.get("feature_extractor_type"))
        kind = pillow_processor(f"{ENDINGS.split(named, maxsplit=1)[0]}ImageProcessorPil")
        if kind is None:
            raise
        processor: BaseImageProcessor = kind.from_pretrained(directory, local_files_only=True)
        return processor


def pillow_processor(name: str) -> Any:
    """Return an image processor of Pillow by the name of its class; None if there is none.

    Breaks when the class of a family is not in its `image_processing_pil_` module.
    """
    families = [
        family.replace("-", "_")
        for family, names in IMAGE_PROCESSOR_MAPPING_NAMES.items()
        if isinstance(names, dict) and names.get("pil") == name
    ]
    for family in families:
        try:
            module = import_module(f"transformers.models.{family}.image_processing_pil_{family}")
        except ImportError:
            continue
        if kind := getattr(module, name, None):
            return kind
    return None


def join_processor(
    kind: type[ProcessorMixin], parts: Mapping[str, Any], settings: Mapping[str, Any]
) -> ProcessorMixin:
    """Return a processor of its parts; a part for videos, which needs torchvision, is left empty.

    Args:
        kind: the class of the processor.
        parts: the tokenizer and the image processor, by the names of the attributes.

    Breaks when the parts are checked elsewhere than in `check_argument_for_proper_class`: the check
    looks for classes of videos, which the newest transformers does not have without torchvision.
    """
    given: Sequence[Any] = [parts.get(name) or _NoVideos() for name in kind.get_attributes()]
    unchecked: Any = type(
        kind.__name__, (kind,), {"check_argument_for_proper_class": _check_nothing}
    )
    processor: ProcessorMixin = unchecked.from_args_and_dict(given, settings)
    return processor


def _check_nothing(_processor: Any, _name: str, _part: Any) -> None:
    """Accept a part of a processor."""


class _NoVideos(BaseVideoProcessor, PushToHubMixin):
    """Stands in the place of a processor of videos, whose own class needs torchvision."""

    def __init__(self) -> None:
        """Set nothing: it is never called."""

    def to_dict(self) -> dict[str, Any]:
        """Return no settings, for a log entry of the processor."""
        return {}


# Tokenizers

# The messages of SentencePiece's model files. Breaks when transformers has their description in
# another module, or for another version of protobuf.
ModelProto = sentencepiece_model_pb2_new.ModelProto
TrainerSpec = sentencepiece_model_pb2_new.TrainerSpec

MBART_CODES, MBART50_CODES, NLLB_CODES = (
    module.FAIRSEQ_LANGUAGE_CODES
    for module in (tokenization_mbart, tokenization_mbart50, tokenization_nllb)
)


class LimitedTokenizer(PreTrainedTokenizerFast):
    """A fast tokenizer whose ids after the last one of the model are the unknown token.

    Breaks when fast tokenizers do not convert each encoding by `_convert_encoding`.

    Attributes:
        ids: how many ids the model has.
    """

    ids: int

    def _convert_encoding(self, *args: Any, **options: Any) -> tuple[dict[str, Any], list[Any]]:
        values, encodings = super()._convert_encoding(*args, **options)
        unknown = int(self.unk_token_id)
        values["input_ids"] = [
            [token if token < self.ids else unknown for token in row] for row in values["input_ids"]
        ]
        return values, encodings


@cache
def bytes_of_letters() -> Mapping[str, int]:
    """Return the byte that each letter of a byte-level token is for.

    Breaks when `bytes_to_unicode` is moved; GPT-2's table itself does not change.
    """
    return {letter: byte for byte, letter in bytes_to_unicode().items()}


# Speech

WHISPER_LANGUAGES: Mapping[str, str] = tokenization_whisper.LANGUAGES
WHISPER_LANGUAGE_CODES: Mapping[str, str] = tokenization_whisper.TO_LANGUAGE_CODE


def join_chunks(
    tokenizer: Any,
    chunks: Sequence[dict[str, Any]],
    *,
    return_timestamps: bool | str | None,
    return_language: bool,
    time_precision: float,
) -> tuple[str, dict[str, Any]]:
    """Return the text of the chunks of an audio file, and its parts with their times.

    Breaks when the pipeline joins chunks by another method of Whisper's tokenizer than
    `_decode_asr`.
    """
    return tokenizer._decode_asr(
        list(chunks),
        return_timestamps=return_timestamps,
        return_language=return_language,
        time_precision=time_precision,
    )


def word_offsets(tokenizer: Any, letters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the places of words, from the places of letters of a CTC tokenizer.

    Breaks when `Wav2Vec2CTCTokenizer` has no `_get_word_offsets`.
    """
    return tokenizer._get_word_offsets(letters, tokenizer.replace_word_delimiter_char)


# Quantizers


def read_conversions() -> None:
    """Read the table of weights that have other names in checkpoints, which takes 0.1 seconds.

    transformers reads it once in a process.

    Breaks when transformers keeps it elsewhere; each load then reads it.
    """
    with suppress(ImportError, AttributeError):
        import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bert")


class NamesRepository(ValueError):
    """A config names its backbone by a repository, whose config would have to be downloaded.

    Breaks when transformers catches a ValueError of :func:`local_backbones`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@contextmanager
def local_backbones() -> Iterator[None]:
    """Read configs and models within the block without asking the hub for their backbones.

    transformers asks whether a name such as resnet18 is a repository, before it takes it for a
    model of timm.

    Breaks when transformers asks in another way than by `repo_exists` of its module of backbones,
    or, from 5.23 on, of what `hf_api` returns there.

    Raises:
        NamesRepository: a config names a repository, and does not have the config in it.
    """
    module: Any = import_module("transformers.backbone_utils")
    local = {
        "repo_exists": _is_repository,
        "hf_api": lambda: SimpleNamespace(repo_exists=_is_repository),
    }
    own = {name: getattr(module, name) for name in local if hasattr(module, name)}
    for name in own:
        setattr(module, name, local[name])
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(module, name, function)


def _is_repository(name: str) -> bool:
    if "/" in name:
        raise NamesRepository(name)
    return False


def missing_package(error: BaseException) -> str | None:
    """Return the package by whose lack transformers explains an error; None for other errors.

    Breaks when such an error is no ImportError, or its message does not say how to install it.
    """
    if not isinstance(error, ImportError):
        return None
    named = INSTALL.search(str(error))
    return named[1] if named else error.name


def lacks_package(error: Exception) -> bool:
    """Return whether weights were not loaded because the package of their quantization is missing.

    Breaks when transformers raises another error for a missing package: with GPTQ, it is the
    NameError of a class that it could not import.
    """
    return isinstance(error, (ImportError, NameError))


def linear_sizes(layer: torch.nn.Module) -> tuple[int, int] | None:
    """Return the sizes of the input and of the output of a linear layer; None for other layers.

    Breaks when GPT-2's `Conv1D` is another class, or its weight has another shape.
    """
    if isinstance(layer, torch.nn.Linear):
        return layer.in_features, layer.out_features
    if isinstance(layer, Conv1D):
        inputs, outputs = layer.weight.shape
        return inputs, outputs
    return None
