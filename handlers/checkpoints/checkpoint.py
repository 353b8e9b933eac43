"""The config, labels, tokenizer and processors of a checkpoint, of local files only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from transformers import PreTrainedConfig, ProcessorMixin

from ..batching.rows import TrialRows
from ..compat.imports import without_scikit_learn
from ..compat.transformers import (
    NamesRepository,
    join_processor,
    local_backbones,
    processor_class,
    read_image_processor,
    tokenizer_class,
)
from ..config.documents import read_json
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import WrongCheckpoint, summarize
from . import nomic_bert
from .architecture import (
    BASES,
    UNLIMITED,
    check_computation,
    check_head,
    check_values,
    first_position,
    install_remedy,
    position_limit,
)
from .checkpoint_files import GLICLASS, GLINER2, files_in, missing_config
from .dual_encoder import reads_lower_case
from .probe_inputs import RowMaker, probe_rows
from .static_embedding import StaticEmbedding
from .tokenizer_files import (
    has_sentencepiece_only,
    read_in_lower_case,
    read_tokenizer,
    restore_splits,
)
from .unread_files import TEKKEN, check_read

with without_scikit_learn():
    from transformers import (
        CONFIG_MAPPING,
        AutoConfig,
        AutoFeatureExtractor,
        AutoTokenizer,
        BertTokenizerFast,
        GenerationConfig,
        PreTrainedConfig,
        PreTrainedTokenizerBase,
        PreTrainedTokenizerFast,
        ProcessorMixin,
        SequenceFeatureExtractor,
    )
    from transformers.image_processing_utils import BaseImageProcessor


# Class names, in either form of TorchServe's example: {"0": "Accepted"} or
# {"label_list": "[O, B-PER]"}.
LABELS = "index_to_name.json"
PROCESSOR = "processor_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab*.json",
    "vocab*.txt",
    "*.model",
    "*.spm",
    "*.bpe",
    "*.tiktoken",
)
# SentencePiece files, which only a few families' tokenizers are read from.
CONVERTED = ("*.model", "*.spm")
CONVERT = (
    "write its tokenizer.json once, where the packages sentencepiece and protobuf are installed: "
    'AutoTokenizer.from_pretrained("FOLDER").save_pretrained("FOLDER")'
)
# Model types of other libraries: the library, and the mode that serves them.
OTHER_LIBRARIES: Mapping[str, tuple[str, str]] = {
    GLICLASS: ("GLiClass", "use mode: zero_shot_classification"),
    GLINER2: ("GLiNER2", "use mode: zero_shot_token_classification"),
}
# Of model types whose own tokenizer takes no texts, or is no fast one: one with its vocabulary.
TEXT_TOKENIZERS: Mapping[str, Any] = {
    "tapas": BertTokenizerFast,
    # Its own one needs the package sentencepiece, and has no tokenizer.json.
    "siglip": PreTrainedTokenizerFast,
    # Its own one takes words with boxes only.
    "layoutlmv3": PreTrainedTokenizerFast,
}


class NoOffsets(WrongCheckpoint):
    """A tokenizer has no character offsets, and the mode needs them."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of transformers without its weights.

    Checkpoints of other libraries derive from it, and a task names the class that it reads.

    Attributes:
        handler: the `handler` section, with the settings of its tokenizer.
    """

    directory: Path
    config: PreTrainedConfig
    handler: HandlerSection

    @classmethod
    def read(cls, directory: Path, handler: HandlerSection) -> Self:
        """Read the config in a directory; a tokenizer is read when it is needed.

        Raises:
            WrongCheckpoint: it is missing or cannot be read without remote code.
        """
        return cls(directory, _config(directory, handler), handler)

    def check(self, auto_class: str) -> None:
        """Check that a model of an auto class can be loaded, without reading its weights.

        Raises:
            WrongCheckpoint: it has another head, or needs custom code.
        """
        place = self.handler.model_name or str(self.directory)
        has_head = auto_class not in BASES and not self.handler.may_lack_head
        check_read(self.directory, self.config, place, has_head=has_head)
        check_head(self.config, self.handler, auto_class)
        check_computation(self.config, auto_class, place)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, which has character offsets.

        Raises:
            WrongCheckpoint: it has none, is missing, or cannot be read without remote code.
        """
        tokenizer = self.any_tokenizer
        if not tokenizer.is_fast:
            raise NoOffsets(
                "tokenizer",
                f"{type(tokenizer).__name__} has no character offsets, which mode"
                f" {self.handler.mode} needs",
                "serve a checkpoint with a tokenizer.json",
            )
        return tokenizer

    @cached_property
    def text_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of a mode that needs no character offsets.

        Raises:
            WrongCheckpoint: it is missing or cannot be read without remote code.
        """
        try:
            return self.tokenizer
        except NoOffsets:
            return self.any_tokenizer

    @cached_property
    def any_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, which may have no character offsets.

        Raises:
            WrongCheckpoint: it is missing or cannot be read without remote code.
        """
        tokenizer = _tokenizer(self.directory, self.handler, self.config)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        return tokenizer

    @cached_property
    def image_processor(self) -> BaseImageProcessor:
        """The image processor.

        Raises:
            WrongCheckpoint: it is missing or cannot be read without remote code.
        """
        return _preprocessor(read_image_processor, self.directory)

    @cached_property
    def feature_extractor(self) -> SequenceFeatureExtractor:
        """The feature extractor of audio.

        Raises:
            WrongCheckpoint: it is missing or cannot be read without remote code.
        """
        return _preprocessor(AutoFeatureExtractor.from_pretrained, self.directory)

    @cached_property
    def processor(self) -> ProcessorMixin:
        """The processor of images and texts, with a separate tokenizer, which threads may share.

        Raises:
            WrongCheckpoint: it is missing or cannot be read without remote code.
        """
        tokenizer = _tokenizer(self.directory, self.handler, self.config)
        return read_processor(self.directory, self.config, tokenizer, self.image_processor)

    @cached_property
    def labels(self) -> list[str]:
        """Class names by class id."""
        return read_labels(self.directory, self.config.id2label, self.config.num_labels)

    @property
    def architecture(self) -> str:
        """The name of the model class that the checkpoint was saved from."""
        return str(next(iter(self.config.architectures or ()), self.config.model_type))

    @property
    def weight_names(self) -> Mapping[str, str]:
        """Names that transformers gives weights, by patterns of their names in the file."""
        return {}

    @cached_property
    def independent_labels(self) -> bool:
        """Whether the model is a multi-label classifier."""
        return bool(self.config.problem_type == "multi_label_classification")

    @property
    def pad_token_id(self) -> int:
        """The id that fills the shorter rows of a batch.

        It is the config's padding id, by which some models find the end of a text; the tokenizer's
        padding id may be another one.
        """
        named = getattr(self.config.get_text_config(), "pad_token_id", None)
        candidates = (named, self.text_tokenizer.pad_token_id)
        known = (each for each in candidates if each is not None and 0 <= each < self.vocab_size)
        return int(next(known, 0))

    @property
    def vocab_size(self) -> int:
        """The number of ids that the model has embeddings for."""
        named = getattr(self.config.get_text_config(), "vocab_size", None)
        return int(named or len(self.text_tokenizer))

    @cached_property
    def row_maker(self) -> RowMaker:
        """Makes rows of random tokens with the special tokens of a text."""
        return RowMaker.of(self.text_tokenizer, self.vocab_size, self.pad_token_id)

    def probe_rows(self, max_tokens: int | None) -> TrialRows:
        """Return rows on which the model shows what padding and packing do to its outputs.

        Args:
            max_tokens: the longest row that the model may get; None if there is no limit.
        """
        return probe_rows(self.config, self.row_maker, max_tokens)

    @cached_property
    def baseline_token_id(self) -> int:
        """The id that replaces a token in the baseline of an explanation.

        It is the padding token unless that changes the model's output: the RoBERTa family derives
        position ids from padding, and decoders often pad with the end token. For these it is the
        mask token, the unknown token, a space, or the first one, with which OpenAI's CLIP pads.
        """
        tokenizer, pad = self.text_tokenizer, self.text_tokenizer.pad_token_id
        if pad not in (None, tokenizer.eos_token_id) and not first_position(self.config):
            return int(pad)
        spaces = tokenizer(" ", add_special_tokens=False)["input_ids"]
        candidates = (tokenizer.mask_token_id, tokenizer.unk_token_id, *spaces, 0)
        neutral = (each for each in candidates if each not in (None, pad, tokenizer.eos_token_id))
        return int(next(neutral, pad or 0))

    @cached_property
    def generation_config(self) -> GenerationConfig:
        """The generation config of the checkpoint.

        Raises:
            WrongCheckpoint: generation_config.json cannot be read.
        """
        name = "generation_config.json"
        if not (self.directory / name).is_file():
            return self._legacy_generation_config
        try:
            return GenerationConfig.from_pretrained(self.directory, local_files_only=True)
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise WrongCheckpoint(
                name, f"cannot be read ({summarize(error)})", "correct the file or remove it"
            ) from None

    @property
    def _legacy_generation_config(self) -> GenerationConfig:
        """The generation config in config.json, which transformers 5 leaves out of the config."""
        path = self.directory / "config.json"
        if self.config.is_encoder_decoder and path.is_file():
            return GenerationConfig.from_model_config(read_json(path))
        return GenerationConfig.from_model_config(self.config)

    @property
    def decoder_positions(self) -> int | None:
        """The number of positions of a decoder behind an encoder; None for relative ones."""
        names = ("max_decoder_position_embeddings", "max_position_embeddings")
        found = (getattr(self.config, name, None) for name in names)
        return next((int(each) for each in found if each), None)

    @cached_property
    def limit(self) -> int | None:
        """The maximum number of tokens in a row; None if model and tokenizer have no limit."""
        limits = (self.text_tokenizer.model_max_length, self.position_limit)
        limit = min(each for each in limits if each is not None)
        return limit if limit < UNLIMITED else None

    @property
    def position_limit(self) -> int | None:
        """The maximum number of tokens for which the model has positions; None for any number."""
        return position_limit(self.config)


def _config(directory: Path, handler: HandlerSection) -> PreTrainedConfig:
    labels = {"num_labels": handler.num_labels} if handler.may_lack_head else {}
    path = directory / "config.json"
    if static := StaticEmbedding.find(directory):
        return static.config()
    if not path.is_file():
        raise missing_config(files_in(directory), str(directory), directory.joinpath)
    with suppress(OSError, ValueError):  # `from_pretrained` says what is wrong
        check_values(read_json(path), path.name)
    try:
        with local_backbones():
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                directory,
                local_files_only=True,
                trust_remote_code=False,
                **{name: value for name, value in labels.items() if value},
            )
    except NamesRepository as error:
        raise WrongCheckpoint(
            path.name,
            f"has a backbone by the name of a repository, {quote(error.name)}, whose config is not"
            " in this checkpoint",
            f"copy the config.json of {error.name:.80} to the key backbone_config",
        ) from None
    except Exception as error:  # noqa: BLE001 - each family reads values in its own way
        if unknown := _unknown_type(path):
            raise unknown from None
        raise WrongCheckpoint(
            "config.json",
            f"cannot be read ({summarize(error)})",
            "pack the checkpoint's config.json",
        ) from None
    nomic_bert.translate(config)
    return config


def _unknown_type(path: Path) -> WrongCheckpoint | None:
    """Return the error of a model type that only the code of its repository knows."""
    with suppress(OSError, ValueError, AttributeError):
        document = read_json(path)
        named = next(iter((document.get("auto_map") or {}).values()), None)
        kind = str(document.get("model_type", "of no name"))
        if kind in OTHER_LIBRARIES:
            library, remedy = OTHER_LIBRARIES[kind]
            return WrongCheckpoint(
                path.name, f"is the config of a {library}, which this mode does not serve", remedy
            )
        if named and kind not in CONFIG_MAPPING:
            return WrongCheckpoint(
                path.name,
                f"has the model type {kind!s:.80}, which only code of its repository knows"
                f" ({named!s:.120} in auto_map), and this kit never runs such code",
                "use a checkpoint of a model type that transformers has",
            )
        if "model_type" not in document:
            return WrongCheckpoint(
                path.name,
                "names no model_type, as every model of transformers does",
                "use a checkpoint that transformers has saved",
            )
    return None


def _tokenizer(
    directory: Path, handler: HandlerSection, config: PreTrainedConfig
) -> PreTrainedTokenizerBase:
    if static := StaticEmbedding.find(directory):
        return static.tokenizer(_settings(handler))
    has_files = any(path for pattern in TOKENIZER_FILES for path in directory.glob(pattern))
    if not has_files and (directory / TEKKEN).is_file():
        raise WrongCheckpoint(
            "tokenizer",
            f"the checkpoint has {TEKKEN} alone, which the package mistral-common reads",
            "use a repository with a tokenizer.json of the same model",
        )
    if not has_files and not _needs_no_files(directory, config):
        raise WrongCheckpoint(
            "tokenizer",
            "the checkpoint has no tokenizer files",
            "add tokenizer.json and tokenizer_config.json (or vocab.txt, vocab.json, *.model)",
        )
    return _load_tokenizer(directory, handler, config)


def _needs_no_files(directory: Path, config: PreTrainedConfig) -> bool:
    """Return whether a tokenizer has no vocabulary: ByT5 and CANINE read characters."""
    name = None
    with suppress(OSError, ValueError, AttributeError):
        settings = read_json(directory / "tokenizer_config.json")
        name = settings.get("tokenizer_class")
    kind = tokenizer_class(name, config.model_type)
    return kind is not None and not kind.vocab_files_names


def _load_tokenizer(
    directory: Path, handler: HandlerSection, config: PreTrainedConfig
) -> PreTrainedTokenizerBase:
    settings = _settings(handler)
    try:
        if has_sentencepiece_only(directory):
            return read_tokenizer(directory, settings)
        kind = TEXT_TOKENIZERS.get(config.model_type, AutoTokenizer)
        tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False, **settings
        )
        restore_splits(tokenizer, directory)
        if reads_lower_case(tokenizer, config):
            read_in_lower_case(tokenizer)
        return tokenizer
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises bare Exceptions
        raise WrongCheckpoint(
            "tokenizer",
            f"cannot be loaded ({summarize(error)})",
            CONVERT
            if _is_unconverted(directory)
            else install_remedy(error) or "pack the tokenizer files of the checkpoint",
        ) from None


def _is_unconverted(directory: Path) -> bool:
    """Return whether a checkpoint has SentencePiece files and no `tokenizer.json`."""
    has_files = any(path for pattern in CONVERTED for path in directory.glob(pattern))
    return has_files and not (directory / "tokenizer.json").exists()


def _preprocessor(load: Callable[..., Any], directory: Path) -> Any:
    """Return the image processor or the feature extractor of a checkpoint."""
    try:
        return load(directory, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - each processor checks its config in its own way
        raise WrongCheckpoint(
            "preprocessor_config.json",
            f"cannot be read ({summarize(error)})",
            install_remedy(error) or "pack the preprocessor_config.json of the checkpoint",
        ) from None


def _settings(handler: HandlerSection) -> dict[str, Any]:
    settings = {"do_lower_case": handler.do_lower_case, **handler.tokenizer.model_dump()}
    return {key: value for key, value in settings.items() if value is not None}


def read_labels(directory: Path, id2label: Mapping[int, str], count: int) -> list[str]:
    """Return the class names by class id.

    Args:
        directory: the directory of `index_to_name.json`, which is optional.
        id2label: the labels of the checkpoint's config.

    Raises:
        WrongCheckpoint: `index_to_name.json` cannot be read or does not name every class.
    """
    path = directory / LABELS
    if not path.is_file():
        return [str(id2label.get(number, f"LABEL_{number}")) for number in range(count)]
    labels = _parse_labels(path)
    if len(labels) != count:
        raise WrongCheckpoint(
            LABELS,
            f"names {len(labels)} classes, and the checkpoint has {count}",
            "name each class once, or leave the file out to use the checkpoint's id2label",
        )
    return labels


def _parse_labels(path: Path) -> list[str]:
    try:
        document = read_json(path)
        if "label_list" in document:
            return _label_list(document["label_list"])
        return [_label(document[str(number)]) for number in range(len(document))]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongCheckpoint(
            LABELS,
            f"cannot be read ({type(error).__name__}: {error})",
            'write {"0": "first", "1": "second"} or {"label_list": "[first, second]"}',
        ) from None


def _label_list(labels: str | list[str]) -> list[str]:
    if isinstance(labels, list):
        return [str(label) for label in labels]
    return [label.strip(" '\"") for label in labels.strip().strip("[]").split(",")]


def _label(value: Any) -> str:
    return str(value[-1] if isinstance(value, list) else value)


def read_processor(
    directory: Path, config: PreTrainedConfig, tokenizer: Any, image_processor: Any
) -> ProcessorMixin:
    """Return the processor of a checkpoint, for images and texts.

    A part for videos, which would need torchvision, is left empty: no videos are read.

    Raises:
        WrongCheckpoint: it cannot be read, or the model has none.
    """
    kind = processor_class(config)
    if kind is None:
        raise WrongCheckpoint(
            "config.json",
            f"is that of {config.model_type}, which has no processor of images and texts",
            "serve a checkpoint of another family",
        )
    parts = {"tokenizer": tokenizer, "image_processor": image_processor}
    try:
        settings, _ = kind.get_processor_dict(directory, local_files_only=True)
        return join_processor(kind, parts, settings)
    except Exception as error:  # noqa: BLE001 - each processor checks its config in its own way
        raise WrongCheckpoint(
            PROCESSOR,
            f"cannot be read ({summarize(error)})",
            install_remedy(error) or f"pack the {PROCESSOR} of the checkpoint",
        ) from None
