"""GLiClass: labels that a request names, and a text, in one row of an encoder.

The files of the package `gliclass` 0.1:

    config.json          the config of the head and, in it, of the encoder
    model.safetensors    the weights of both
    tokenizer.json, …    with the tokens that mark labels and their end

Stepanov et al.: GLiClass: Generalist Lightweight Model for Sequence Classification Tasks, 2025.
Source of the format: gliclass 0.1.21, `GLiClassModelConfig` and `GLiClassUniEncoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel

from ..batching.words import PROMPTS, WORDS
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from .checkpoint import Checkpoint
from .checkpoint_files import CONFIG
from .gliner import (
    LabelledRowMaker,
    Places,
    Problem,
    ProductScorer,
    Weights,
    check_supported,
    check_tokens,
    encoder_config,
    has_any_length,
    linear,
    make_head,
)
from .pooling import PoolingHead, TextSlots, not_compiled
from .probe_inputs import RowMaker
from .sentence_transformers import read_model

LABEL, END = "<<LABEL>>", "<<SEP>>"
ENCODER = "model.encoder_model."
# The tokens of a row in the package, where the encoder has no limit.
LONGEST = 1024
EPSILON = 1e-8
AVERAGE: Literal["average"] = "average"
Pooling = Literal["first", "average"]
USE_ANOTHER = "use a checkpoint of GLiClass with one encoder for the text and the labels"


class GliclassConfig(BaseModel):
    """config.json, as far as it changes what is computed.

    Attributes:
        pooling_strategy: how the vectors of the tokens of the text become one.
        class_token_pooling: the tokens of a label whose vectors are read.
        embed_class_token: whether the token before a label is read with it, or instead of it.
        extract_text_features: whether the vectors of the text begin at the end of the labels.
        prompt_first: whether the labels stand before the text.
    """

    architecture_type: str = "uni-encoder"
    encoder_config: dict[str, Any] | None = None
    vocab_size: int | None = None
    projector_hidden_act: str = "gelu"
    scorer_type: str = "simple"
    pooling_strategy: str = "first"
    class_token_pooling: Pooling = "first"  # noqa: S105 - the name of a pooling
    embed_class_token: bool = True
    normalize_features: bool = False
    extract_text_features: bool = False
    prompt_first: bool = False
    squeeze_layers: bool = False
    encoder_layer_id: int = -1
    use_lstm: bool = False
    use_segment_embeddings: bool = False
    use_calibrator: bool = False

    def places(self, marks: Sequence[int], end: int, count: int) -> dict[str, list[int]]:
        """Return the number of the label, and of the text, that each token of a row is read for.

        Args:
            marks: the token before each label.
            end: the token behind all labels.
            count: the number of tokens.
        """
        labels, text = [0] * count, [0] * count
        behind = 0 if self.embed_class_token else 1
        last = end if self.extract_text_features else count
        for number, (first, following) in enumerate(pairwise([*marks, last]), 1):
            start = first + behind
            stop = max(following, start + 1) if self._reads_whole_labels else start + 1
            labels[start:stop] = [number] * (stop - start)
        start = end if self.extract_text_features else 0
        chosen = {"first": [start], "last": [count - 1]}
        for place in chosen.get(self.pooling_strategy, range(start, count)):
            text[place] = 1
        return {PROMPTS: labels, WORDS: text}

    @property
    def _reads_whole_labels(self) -> bool:
        return self.class_token_pooling == AVERAGE


# Of each pooling, which vectors of a row `Places.gather` reads.
POOLINGS = {"first": "sum", "last": "sum", "avg": "mean", "max": "max", "sum": "sum"}
ACTIVATIONS: Mapping[str, Callable[[], torch.nn.Module]] = {
    "gelu": torch.nn.GELU,
    "relu": torch.nn.ReLU,
    "silu": torch.nn.SiLU,
    "tanh": torch.nn.Tanh,
}
UNSUPPORTED: tuple[Problem[GliclassConfig], ...] = (
    (
        lambda own: own.architecture_type != "uni-encoder",
        lambda own: f"has the architecture_type {quote(own.architecture_type)}",
        USE_ANOTHER,
    ),
    (
        lambda own: own.scorer_type not in SCORERS,
        lambda own: f"has the scorer_type {quote(own.scorer_type)}",
        "use a checkpoint with simple, weighted-dot or mlp",
    ),
    (
        lambda own: own.projector_hidden_act not in ACTIVATIONS,
        lambda own: f"has the projector_hidden_act {quote(own.projector_hidden_act)}",
        f"use a checkpoint with {', '.join(ACTIVATIONS)}",
    ),
    (
        lambda own: own.pooling_strategy not in POOLINGS,
        lambda own: f"has the pooling_strategy {quote(own.pooling_strategy)}",
        "use a checkpoint with first, last, avg, max or sum",
    ),
    (
        lambda own: own.extract_text_features and own.pooling_strategy not in ("first", "sum"),
        lambda own: (
            f"has extract_text_features and the pooling_strategy {quote(own.pooling_strategy)},"
            " which depends on the padding of a batch"
        ),
        "use a checkpoint without extract_text_features",
    ),
    (
        lambda own: own.squeeze_layers or own.encoder_layer_id != -1,
        lambda own: "reads other layers of the encoder than the last one",
        "use a checkpoint without squeeze_layers and with encoder_layer_id: -1",
    ),
    (
        lambda own: own.use_lstm,
        lambda own: "has use_lstm, a second encoder for the text",
        "use a checkpoint without it",
    ),
    (
        lambda own: own.use_segment_embeddings,
        lambda own: "has use_segment_embeddings, which change the vectors of tokens",
        "use a checkpoint without them",
    ),
    (
        lambda own: own.use_calibrator,
        lambda own: "has use_calibrator, a second head that changes the scores",
        "use the checkpoint that it was added to, and `temperature` for decisions",
    ),
)


@dataclass(frozen=True)
class GliclassCheckpoint(Checkpoint):
    """A checkpoint of GLiClass without its weights; `config` is the config of its encoder."""

    head: GliclassConfig

    @classmethod
    def read(cls, directory: Path, handler: HandlerSection) -> Self:
        """Read the `config.json` in a directory.

        Raises:
            WrongCheckpoint: it is damaged, or says what this kit does not compute.
        """
        head = read_model(directory / CONFIG, GliclassConfig)
        check_supported(head, CONFIG, UNSUPPORTED)
        config = encoder_config(head.encoder_config or {}, directory, CONFIG)
        config.vocab_size = head.vocab_size or config.vocab_size
        return cls(directory, config, handler, head)

    def check(self, auto_class: str) -> None:
        """Check that transformers has the encoder, and that its tokenizer marks labels.

        Raises:
            WrongCheckpoint: it has not, or there is no token that marks them.
        """
        super().check(auto_class)
        check_tokens(self.tokenizer, [LABEL, END], CONFIG)

    @property
    def architecture(self) -> str:
        return "GLiClass"

    @property
    def weight_names(self) -> Mapping[str, str]:
        return {f"^{ENCODER}".replace(".", r"\."): ""}

    @cached_property
    def limit(self) -> int | None:
        """The maximum number of tokens in a row."""
        own = self.tokenizer.model_max_length if has_any_length(self.config) else super().limit
        return min(own or LONGEST, LONGEST) if has_any_length(self.config) else own

    @cached_property
    def row_maker(self) -> RowMaker:
        """Makes rows of random tokens, the first of which is a label."""
        return LabelledRowMaker.of(self.text_tokenizer, self.vocab_size, self.pad_token_id)


class GliclassHead(PoolingHead):
    """A logit for each label of each text, in float32. Shape: (texts, labels).

    Tokens with the number of a label in `prompt_numbers` are read for it, and tokens with 1 in
    `word_numbers` for the text.

    Args:
        config: the config.
        weights: the weights of the whole checkpoint.
    """

    writes = "logits"
    inputs = (PROMPTS, WORDS)

    def __init__(self, config: GliclassConfig, weights: Weights) -> None:
        super().__init__()
        self.pooling = POOLINGS[config.pooling_strategy]
        self.text = _projector(weights, "model.text_projector", config.projector_hidden_act)
        self.labels = _projector(weights, "model.classes_projector", config.projector_hidden_act)
        self.scorer = SCORERS[config.scorer_type](weights)
        scale = weights["model.logit_scale"] if config.normalize_features else None
        self.scale: torch.Tensor | None
        self.register_buffer("scale", scale)

    @not_compiled
    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        flat = values.float().flatten(0, 1)
        text = Places(inputs[WORDS], slots).gather(flat, self.pooling)[:, :1]
        labels = Places(inputs[PROMPTS], slots).gather(flat, "mean")
        text, labels = self.text(text), self.labels(labels)
        if self.scale is None:
            return torch.as_tensor(self.scorer(text, labels))
        text = text / (text.norm(dim=-1, keepdim=True) + EPSILON)
        labels = labels / (labels.norm(dim=-1, keepdim=True) + EPSILON)
        return torch.as_tensor(self.scorer(text, labels) * self.scale)


class _Dot(torch.nn.Module):
    """The product of the vectors of a text and of a label."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()

    def forward(self, text: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (labels @ text.transpose(1, 2))[..., 0]


class _WeightedDot(ProductScorer):
    def __init__(self, weights: Weights) -> None:
        super().__init__(weights, "model.scorer", "proj_text")

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return super().forward(words, labels)[:, 0, :, 0]


class _Layers(torch.nn.Module):
    """Three layers over the vectors of a text and of a label side by side."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        first, second, third = (linear(weights, f"model.scorer.mlp.{place}") for place in (0, 2, 4))
        relu = torch.nn.ReLU()
        self.layers = torch.nn.Sequential(first, relu, second, relu, third)

    def forward(self, text: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        both = torch.cat([text.expand_as(labels), labels], -1)
        return torch.as_tensor(self.layers(both)[..., 0])


SCORERS: Mapping[str, Callable[[Weights], torch.nn.Module]] = {
    "simple": _Dot,
    "weighted-dot": _WeightedDot,
    "mlp": _Layers,
}


def read_gliclass_head(checkpoint: GliclassCheckpoint) -> GliclassHead:
    """Return the head of a checkpoint.

    Raises:
        WrongCheckpoint: weights are missing or do not fit.
    """
    return make_head(
        lambda weights: GliclassHead(checkpoint.head, weights),
        checkpoint.directory,
        ENCODER,
        CONFIG,
    )


def _projector(weights: Weights, name: str, activation: str) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        linear(weights, f"{name}.linear_1"),
        ACTIVATIONS[activation](),
        linear(weights, f"{name}.linear_2"),
    )
