"""GLiNER: spans of words, scored with labels that a request names.

The files of the package `gliner` 0.2:

    gliner_config.json                   the config of the head and, in it, of the encoder
    model.safetensors                    the weights of both
    tokenizer.json, …                    with the tokens that mark labels and the text

Early checkpoints have neither a tokenizer nor the config of their encoder. The download adds the
`config.json` and the tokenizer of the model in `model_name`.

Zaratiana et al.: GLiNER: Generalist Model for Named Entity Recognition, 2023.
Source of the format: gliner 0.2.29, `GLiNER.save_pretrained`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt
from safetensors import safe_open
from torch.nn.functional import relu
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from ..batching.rows import Row
from ..batching.words import PROMPTS, WORDS, Prompt
from ..config.documents import read_json
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import WrongCheckpoint, summarize
from .architecture import check_values
from .checkpoint import Checkpoint
from .checkpoint_files import CONFIG, GLINER
from .pooling import PoolingHead, TextSlots, not_compiled
from .probe_inputs import RowMaker
from .sentence_transformers import read_model, read_weights, weights_file

TOKEN_LEVEL = "token_level"  # noqa: S105 - a kind of head
SPAN_MODES = ("markerV0", "marker", TOKEN_LEVEL)
# Tokens of a row for each word of the longest text, where the encoder has no limit.
TOKENS_PER_WORD = 4
# The widest spans that a config may have; vectors of all widths are in memory at once.
MAX_WIDTH = 1_000
ENCODER = r"^token_rep_layer\.bert_layer\.model\."
FLERT = "[FLERT]"
# Encoders whose positions are relative, or are computed for any length.
WITHOUT_LIMIT = ("deberta-v2", "t5", "mt5", "umt5")
USE_ANOTHER = "use a checkpoint of GLiNER that finds entities with one encoder"

Pooling = Literal["first", "last", "mean", "max"]


class GlinerConfig(BaseModel):
    """gliner_config.json, as far as it changes what is computed.

    Attributes:
        max_width: the words of the longest span.
        max_len: the words of the longest text.
        ent_token: the token before each label.
        sep_token: the token between labels and text.
        embed_ent_token: whether the vector of a label is read at the token before it, and not at
            its first token.
        class_token_index: the id of `ent_token`; -1 where tokens are added when it is loaded.
    """

    model_name: str = ""
    model_type: str | None = None
    span_mode: str = "markerV0"
    hidden_size: PositiveInt = 512
    max_width: int = Field(default=12, ge=1, le=MAX_WIDTH)
    max_len: PositiveInt = 384
    num_rnn_layers: NonNegativeInt = 1
    subtoken_pooling: Pooling = "first"
    words_splitter_type: str = "whitespace"
    ent_token: str = "<<ENT>>"  # noqa: S105 - a word of the vocabulary
    sep_token: str = "<<SEP>>"  # noqa: S105 - a word of the vocabulary
    embed_ent_token: bool = True
    class_token_index: int = -1
    vocab_size: int = -1
    encoder_config: dict[str, Any] | None = None
    fuse_layers: bool = False
    represent_spans: bool = False
    precomputed_prompts_mode: bool | None = None
    span_encoder_config: dict[str, Any] | None = None
    labels_encoder: str | None = None
    labels_decoder: str | None = None
    relations_layer: str | None = None

    @property
    def adds_tokens(self) -> bool:
        """Whether the tokens of labels are added when it is loaded."""
        return -1 in (self.class_token_index, self.vocab_size)


ConfigT = TypeVar("ConfigT")
# Whether a config has a problem, what it is, and what to do.
Problem = tuple[Callable[[ConfigT], object], Callable[[ConfigT], str], str]
UNSUPPORTED: tuple[Problem[GlinerConfig], ...] = (
    (
        lambda own: own.model_type == "gliner_streaming_span",
        lambda own: "is the config of a streaming model, which reads texts with a decoder",
        USE_ANOTHER,
    ),
    (
        lambda own: own.relations_layer and own.relations_layer != "none",
        lambda own: "has a relations_layer, and this mode finds entities without relations",
        USE_ANOTHER,
    ),
    (
        lambda own: own.labels_decoder,
        lambda own: "has a labels_decoder, which writes other labels",
        USE_ANOTHER,
    ),
    (
        lambda own: own.labels_encoder,
        lambda own: "has a labels_encoder, and labels are read by the encoder of the text here",
        USE_ANOTHER,
    ),
    (
        lambda own: own.span_mode not in SPAN_MODES,
        lambda own: f"has the span_mode {quote(own.span_mode)}",
        f"use a checkpoint with {', '.join(SPAN_MODES[:-1])} or {SPAN_MODES[-1]}",
    ),
    (
        lambda own: own.words_splitter_type != "whitespace",
        lambda own: f"splits words by {quote(own.words_splitter_type)}, which is another package",
        "use a checkpoint with words_splitter_type: whitespace",
    ),
    (
        lambda own: own.fuse_layers,
        lambda own: "has fuse_layers, which reads all layers of the encoder",
        USE_ANOTHER,
    ),
    (
        lambda own: own.represent_spans and own.span_mode == TOKEN_LEVEL,
        lambda own: "has represent_spans, which scores the spans that its tokens mark again",
        USE_ANOTHER,
    ),
    (
        lambda own: own.span_encoder_config,
        lambda own: "has a span_encoder_config, a second encoder for words",
        USE_ANOTHER,
    ),
    (
        lambda own: own.precomputed_prompts_mode,
        lambda own: "has precomputed_prompts_mode, in which requests name no labels",
        USE_ANOTHER,
    ),
)


@dataclass(frozen=True)
class GlinerCheckpoint(Checkpoint):
    """A checkpoint of GLiNER without its weights; `config` is the config of its encoder."""

    head: GlinerConfig

    @classmethod
    def read(cls, directory: Path, handler: HandlerSection) -> Self:
        """Read the `gliner_config.json` in a directory.

        Raises:
            WrongCheckpoint: it is missing or damaged, or says what this kit does not compute.
        """
        if not (directory / GLINER).is_file():
            raise WrongCheckpoint(
                GLINER,
                "is missing, so this is no checkpoint of GLiNER, which this mode serves",
                "use one, or mode: token_classification for a model with fixed labels",
            )
        head = read_model(directory / GLINER, GlinerConfig)
        check_supported(head, GLINER, UNSUPPORTED)
        values = head.encoder_config or _base_config(directory, head)
        found = cls(directory, encoder_config(values, directory), handler, head)
        found.config.vocab_size = vocabulary_of(found)
        return found

    def check(self, auto_class: str) -> None:
        """Check that transformers has the encoder, and that its tokenizer marks labels.

        Raises:
            WrongCheckpoint: it has not, or there is no token that marks them.
        """
        super().check(auto_class)
        check_tokens(self.tokenizer, [self.head.ent_token], GLINER)

    @property
    def architecture(self) -> str:
        return "GLiNER"

    @property
    def weight_names(self) -> Mapping[str, str]:
        return {ENCODER: ""}

    @cached_property
    def any_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, with the tokens that mark labels and the text."""
        tokenizer = super().any_tokenizer
        if self.head.adds_tokens:
            added = [FLERT, self.head.ent_token, self.head.sep_token]
            tokenizer.add_tokens(added, special_tokens=True)
        return tokenizer

    @cached_property
    def limit(self) -> int | None:
        """The maximum number of tokens in a row.

        An encoder with relative positions has none, and neither has its tokenizer in most
        checkpoints. A row then has no more than a few tokens for each word of the longest text.
        """
        own = self.tokenizer.model_max_length if has_any_length(self.config) else super().limit
        longest = TOKENS_PER_WORD * self.head.max_len
        return min(own or longest, longest)

    def prompt(self, labels: Sequence[str], descriptions: Sequence[str]) -> Prompt:
        """Return what a model reads before a text.

        Args:
            labels: the names of the labels, which are not read.
            descriptions: what is read for each.
        """
        marked = [each for read in descriptions for each in (self.head.ent_token, read)]
        return Prompt([*marked, self.head.sep_token], range(0, len(marked), 2))

    @cached_property
    def row_maker(self) -> RowMaker:
        """Makes rows of random tokens: a label, and words of one token each."""
        return LabelledRowMaker.of(self.text_tokenizer, self.vocab_size, self.pad_token_id)


@dataclass(frozen=True)
class LabelledRowMaker(RowMaker):
    """Makes rows whose first token is a label, and whose others are words.

    Attributes:
        prompts: the number of tokens that are read before the words.
    """

    prompts: ClassVar[int] = 1

    def _row(self, length: int, generator: torch.Generator) -> Row:
        row = super()._row(length, generator)
        first = min(len(self.before), length - 1)
        last = max(first + 1, length - len(self.after))
        prompts, words = [0] * length, [0] * length
        for number in range(1, self.prompts + 1):
            prompts[min(first + number, last) - 1] = number
        # A row with one token has it for both.
        for number, place in enumerate(range(min(first + self.prompts, last - 1), last), 1):
            words[place] = number
        return Row({**row.features, PROMPTS: prompts, WORDS: words})


def encoder_config(
    values: Mapping[str, Any], directory: Path, name: str = GLINER
) -> PreTrainedConfig:
    """Return the config of the encoder of a checkpoint.

    Args:
        values: what the file `name` says of it; by default it is a DeBERTa.

    Raises:
        WrongCheckpoint: transformers has no such model, or it has too many layers.
    """
    check_values(values, name)
    known = {key: value for key, value in values.items() if not key.startswith("_")}
    kind = known.pop("model_type", None) or "deberta-v2"
    try:
        config: PreTrainedConfig = AutoConfig.for_model(kind, **known)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongCheckpoint(
            name,
            f"has an encoder of the model type {quote(kind)}, whose config cannot be read"
            f" ({summarize(error)})",
            "use a checkpoint whose encoder transformers has",
        ) from None
    config.name_or_path = str(directory)
    return config


def has_any_length(config: PreTrainedConfig) -> bool:
    """Return whether an encoder reads texts of any length."""
    has_positions = getattr(config, "position_biased_input", False)
    return config.model_type in WITHOUT_LIMIT and not has_positions


def check_supported(config: ConfigT, name: str, problems: Sequence[Problem[ConfigT]]) -> None:
    """Check that this kit computes what a config says.

    Args:
        name: the file that has the config.

    Raises:
        WrongCheckpoint: it has one of the problems.
    """
    for applies, problem, remedy in problems:
        if applies(config):
            raise WrongCheckpoint(name, problem(config), remedy)


def check_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str], name: str) -> None:
    """Check that a tokenizer has the tokens that mark labels.

    Args:
        name: the file that names them.

    Raises:
        WrongCheckpoint: it has not.
    """
    for token in tokens:
        number = tokenizer.convert_tokens_to_ids(token)
        if number is None or number == tokenizer.unk_token_id:
            raise WrongCheckpoint(
                name,
                f"marks labels with {quote(token)}, which is no token of the tokenizer",
                "pack the tokenizer that was saved with the model",
            )


def _base_config(directory: Path, head: GlinerConfig) -> dict[str, Any]:
    """Return the config of the encoder that a checkpoint was made from, in its folder."""
    path = directory / CONFIG
    try:
        values: Any = read_json(path)
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict) or "model_type" not in values:
        raise WrongCheckpoint(
            GLINER,
            f"has no encoder_config, and there is no {CONFIG} of its encoder"
            f" ({head.model_name or 'of no name'}) in its folder",
            "download the checkpoint with `hf-serve download`, which adds it, or copy the"
            " config.json and the tokenizer of that model",
        )
    return values


def vocabulary_of(checkpoint: GlinerCheckpoint) -> int:
    """Return the number of ids that the encoder has vectors of."""
    head = checkpoint.head
    if head.adds_tokens:
        return len(checkpoint.any_tokenizer)
    return head.vocab_size


OUTPUT = "logits"
ENCODER_PREFIX = "token_rep_layer.bert_layer."
PROJECTION = "token_rep_layer.projection"
# Numbers of the tensor that has a vector for each word and each label.
MAX_NUMBERS = 1 << 24

Weights = Mapping[str, torch.Tensor]
HeadT = TypeVar("HeadT", bound=PoolingHead)


class GlinerHead(PoolingHead):
    """Logits at the first token of each word that is read, in float32; zeros at other tokens.

    Args:
        config: the config.
        weights: the weights of the whole checkpoint.
    """

    writes = OUTPUT
    inputs = (PROMPTS, WORDS)
    pools = False

    def __init__(self, config: GlinerConfig, weights: Weights) -> None:
        super().__init__()
        self.pooling = config.subtoken_pooling
        self.projection = linear(weights, PROJECTION) if f"{PROJECTION}.weight" in weights else None
        self.rnn = _lstm(config, weights) if config.num_rnn_layers else None

    @abstractmethod
    def scores(
        self, words: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of each word, of shape (texts, words, …).

        Args:
            words: the vector of each word. Shape: (texts, words, size).
            labels: the vector of each label. Shape: (texts, labels, size).
            counts: the number of words of each text. Shape: (texts,).
        """

    @not_compiled
    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        flat = values.float().flatten(0, 1)
        if self.projection is not None:
            flat = self.projection(flat)
        labels = Places(inputs[PROMPTS], slots)
        words = Places(inputs[WORDS], slots)
        vectors = words.gather(flat, self.pooling)
        if self.rnn is not None:
            vectors = contextualized(self.rnn, vectors, words.counts)
        found = self.scores(vectors, labels.gather(flat, "first"), words.counts)
        return words.scatter(found, len(flat)).unflatten(0, values.shape[:2])


class SpanHead(GlinerHead):
    """Logits of the spans that begin with a word, of each width. Shape: (…, widths, labels)."""

    def __init__(self, config: GlinerConfig, weights: Weights) -> None:
        super().__init__(config, weights)
        self.spans = SpanScorer(weights, "span_rep_layer.span_rep_layer", config.max_width)
        self.labels = two_layers(weights, "prompt_rep_layer")

    def scores(
        self, words: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        return torch.as_tensor(self.spans(words, self.labels(labels), counts))


class SpanScorer(torch.nn.Module):
    """Scores of spans with labels. A span is scored by its first and its last word.

    Args:
        weights: the weights of a checkpoint.
        name: the name of the layers among them.
        width: the words of the longest span.
    """

    def __init__(self, weights: Weights, name: str, width: int) -> None:
        super().__init__()
        self.width = width
        self.start = two_layers(weights, f"{name}.project_start")
        self.end = two_layers(weights, f"{name}.project_end")
        single = f"{name}.out_project.weight" in weights
        self.first = linear(weights, f"{name}.out_project" + ("" if single else ".0"))
        self.second = None if single else linear(weights, f"{name}.out_project.3")

    def forward(
        self, words: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of spans. Shape: (texts, words, widths, labels).

        Spans that end behind the text have zeros. The arguments are the arguments of
        :meth:`GlinerHead.scores`.
        """
        # The first layer reads both ends side by side, so the sum of what it makes of each is the
        # same, and is computed for words and not for spans.
        from_start, from_end = self.first.weight.chunk(2, dim=1)
        starts = relu(self.start(words)) @ from_start.T + self.first.bias
        ends = relu(self.end(words)) @ from_end.T
        count = words.shape[1]
        places = torch.arange(count, device=words.device)[:, None]
        places = places + torch.arange(self.width, device=words.device)
        spans = starts[:, :, None] + ends[:, places.clamp(max=count - 1)]
        in_text = places < counts[:, None, None]
        return self._products(spans, labels) * in_text[..., None]

    def _products(self, spans: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.second is None:
            return torch.einsum("twkd,tcd->twkc", spans, labels)
        # Likewise the second layer is applied to the labels, which are fewer than the spans.
        bias = (labels @ self.second.bias)[:, None, None]
        return torch.einsum("twkd,tcd->twkc", relu(spans), labels @ self.second.weight) + bias


class TokenHead(GlinerHead):
    """Logits of a word as the first, the last, or any word of a span. Shape: (…, labels, 3)."""

    def __init__(self, config: GlinerConfig, weights: Weights) -> None:
        super().__init__(config, weights)
        self.scorer = ProductScorer(weights, "scorer", "proj_token")

    def scores(
        self, words: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        return self.scorer(words, labels)


class ProductScorer(torch.nn.Module):
    """Scores of vectors with the vectors of labels, by both and by their product.

    Args:
        weights: the weights of a checkpoint.
        name: the name of the scorer among them.
        vectors: the name of the layer of the vectors that are no labels.
    """

    def __init__(self, weights: Weights, name: str, vectors: str) -> None:
        super().__init__()
        self.words = linear(weights, f"{name}.{vectors}")
        self.labels = linear(weights, f"{name}.proj_label")
        self.first = linear(weights, f"{name}.out_mlp.0")
        self.second = linear(weights, f"{name}.out_mlp.3")

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the scores of each vector with each label. Shape: (texts, words, labels, …)."""
        from_word, from_label, from_both = self.first.weight.chunk(3, dim=1)
        word, word_factor = self.words(words).chunk(2, dim=-1)
        label, label_factor = self.labels(labels).chunk(2, dim=-1)
        word = word @ from_word.T + self.first.bias
        label = label @ from_label.T
        size = max(1, MAX_NUMBERS // max(1, word.numel()))
        parts = [
            self.second(
                relu(
                    word[:, :, None]
                    + some[:, None]
                    + (word_factor[:, :, None] * factor[:, None]) @ from_both.T
                )
            )
            for some, factor in zip(label.split(size, 1), label_factor.split(size, 1), strict=True)
        ]
        return torch.cat(parts, 2)


class Places:
    """The slots of a batch whose vectors are read, by the number of each in its text.

    Args:
        numbers: the number that is read at a slot, from 1; 0 at others. Shape: (rows, width).
        slots: the slots of each text.
    """

    def __init__(self, numbers: torch.Tensor, slots: TextSlots) -> None:
        flat = numbers.flatten()
        owned = slots.members.any(0)
        (self._slots,) = torch.where((flat > 0) & owned)
        self._texts = slots.members.int().argmax(0)[self._slots]
        self._numbers = flat[self._slots] - 1
        self._shape = len(slots.members), max(1, int(flat.max()))

    @property
    def counts(self) -> torch.Tensor:
        """How many there are in each text: the last number of each. Shape: (texts,)."""
        counts = self._numbers.new_zeros(self._shape[0])
        return counts.scatter_reduce(0, self._texts, self._numbers + 1, "amax")

    def gather(self, values: torch.Tensor, pooling: str) -> torch.Tensor:
        """Return the vector of each, and zeros behind the last. Shape: (texts, count, size).

        Args:
            values: the vector of each slot. Shape: (slots, size).
            pooling: how the vectors of several slots with one number become one.
        """
        texts, count = self._shape
        index = self._texts * count + self._numbers
        found = values.new_zeros(texts * count, values.shape[1])
        chosen = values[self._slots]
        if pooling == "max":
            expanded = index[:, None].expand_as(chosen)
            found = found.scatter_reduce(0, expanded, chosen, "amax", include_self=False)
        else:
            found = found.index_add(0, index, chosen)
        if pooling == "mean":
            ones = found.new_ones(len(index))
            sizes = found.new_zeros(len(found)).index_add(0, index, ones)
            found = found / sizes.clamp(min=1)[:, None]
        return found.unflatten(0, (texts, count))

    def scatter(self, values: torch.Tensor, slots: int) -> torch.Tensor:
        """Return the value of each at its slots, and zeros at others. Shape: (slots, …)."""
        found = values.new_zeros(slots, *values.shape[2:])
        return found.index_copy(0, self._slots, values[self._texts, self._numbers])


def read_head(directory: Path, config: GlinerConfig) -> GlinerHead:
    """Return the head of a checkpoint.

    Raises:
        WrongCheckpoint: weights are missing or do not fit.
    """
    kind = TokenHead if config.span_mode == TOKEN_LEVEL else SpanHead
    return make_head(partial(kind, config), directory, ENCODER_PREFIX, GLINER)


def make_head(
    kind: Callable[[Weights], HeadT], directory: Path, encoder: str, config: str
) -> HeadT:
    """Return a head with the weights of a checkpoint, in float32.

    Args:
        kind: makes it of the weights.
        encoder: what the names of the weights of the encoder begin with, which are not read.
        config: the name of the file with the config, for errors.

    Raises:
        WrongCheckpoint: weights are missing or do not fit.
    """
    own = {name: value.float() for name, value in _read(directory, encoder).items()}
    try:
        return kind(own)
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        raise WrongCheckpoint(
            config,
            f"does not fit the weights, which lack {error!s:.120}"
            if isinstance(error, KeyError)
            else f"does not fit the weights ({error!s:.200})",
            "pack the files that were saved together",
        ) from None


def _read(directory: Path, encoder: str) -> Weights:
    """Return the weights of a checkpoint without the weights of its encoder."""
    path = weights_file(directory)
    if path is None:
        return {}
    if path.suffix != ".safetensors":
        weights = read_weights(path)
        return {name: weights[name] for name in weights if not name.startswith(encoder)}
    with safe_open(path, "pt") as file:
        own = [name for name in file.keys() if not name.startswith(encoder)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in own}


def linear(weights: Weights, name: str) -> torch.nn.Linear:
    """Return a linear layer with its weights.

    Raises:
        KeyError: they are not there.
    """
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def two_layers(weights: Weights, name: str) -> torch.nn.Sequential:
    """Return two linear layers with a ReLU between them; the third is the dropout of training."""
    return linear_layers(weights, name, (0, 3))


def linear_layers(weights: Weights, name: str, places: Sequence[int]) -> torch.nn.Sequential:
    """Return linear layers with a ReLU between them.

    Args:
        places: their numbers among the layers of the checkpoint.
    """
    first, *others = (linear(weights, f"{name}.{place}") for place in places)
    behind = (part for layer in others for part in (torch.nn.ReLU(), layer))
    return torch.nn.Sequential(first, *behind)


def contextualized(rnn: torch.nn.LSTM, vectors: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return what an LSTM makes of the words of each text. Shape: (texts, words, size)."""
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        vectors, counts.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
    )
    found, _ = rnn(packed)
    padded, _ = torch.nn.utils.rnn.pad_packed_sequence(
        found, batch_first=True, total_length=vectors.shape[1]
    )
    return padded


def _lstm(config: GlinerConfig, weights: Weights) -> torch.nn.LSTM:
    size = config.hidden_size
    layer = torch.nn.LSTM(
        size, size // 2, config.num_rnn_layers, batch_first=True, bidirectional=True
    )
    prefix = "rnn.lstm."
    own = {
        name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)
    }
    layer.load_state_dict(own)
    return layer
