"""The head of GLiNER: scores of spans of words, or of words, with the labels of a prompt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from torch.nn.functional import relu

from ..batching.words import PROMPTS, WORDS
from ..errors import WrongCheckpoint
from .checkpoint_files import GLINER
from .gliner import TOKEN_LEVEL, GlinerConfig
from .pooling import PoolingHead, TextSlots, not_compiled
from .sentence_transformers import read_weights, weights_file

OUTPUT = "logits"
ENCODER = "token_rep_layer.bert_layer."
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
    return make_head(partial(kind, config), directory, ENCODER, GLINER)


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
