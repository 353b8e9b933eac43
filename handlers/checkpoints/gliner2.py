"""GLiNER2: spans of words, scored with labels that a request names, where there are any entities.

The files of the package `gliner2`:

    config.json                  the config of the head
    encoder_config/config.json   the config of the encoder
    model.safetensors            the weights of both
    tokenizer.json, …            with the tokens that mark tasks, labels and the text

A checkpoint has heads for entities, labels, relations and structures. This kit computes entities:

    ( [P] entities ( [E] person [E] city ) ) [SEP_TEXT] ada lives in paris .

The vector of `[P]` tells how many structures a text has: without any, it has no entities. The
vectors of `[E]` become the vectors of the labels in one step of a recurrent network.

Zaratiana et al.: GLiNER2: An Efficient Multi-Task Information Extraction System, 2025.
Source of the format: gliner2 2.1.0, `ExtractorConfig` and `SpanExtractorModel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import BaseModel, Field, model_validator
from torch.nn.functional import gelu

from ..batching.words import PROMPTS, WORDS, Prompt
from ..config.documents import read_json
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import WrongCheckpoint
from .checkpoint import Checkpoint
from .checkpoint_files import CONFIG, GLINER2_ENCODER
from .gliner import (
    MAX_WIDTH,
    OUTPUT,
    LabelledRowMaker,
    Places,
    Problem,
    SpanScorer,
    Weights,
    check_supported,
    check_tokens,
    encoder_config,
    has_any_length,
    linear,
    linear_layers,
    make_head,
)
from .pooling import PoolingHead, TextSlots, not_compiled
from .probe_inputs import RowMaker
from .sentence_transformers import read_model

TASK, LABEL, TEXT, DESCRIPTION = "[P]", "[E]", "[SEP_TEXT]", "[DESCRIPTION]"
ENTITIES = "entities"
ENCODER = "encoder."
# How much surer the head is of any number of structures than of none, at the tokens of a prompt.
MARGIN = "margin"
# The tokens of a row, where the encoder has no limit.
LONGEST = 2048
MARKER = "markerV0"
HEADS = 4
USE_ANOTHER = "use a checkpoint with the architecture span, such as fastino/gliner2-base-v1"

Pooling = Literal["first", "mean", "max"]


class Gliner2Config(BaseModel):
    """config.json, as far as it changes what is computed.

    Versions of gliner2 from 2 on have `max_width` and `span_mode` in `span_head`.

    Attributes:
        architecture: how spans are found; early configs do not have it.
        max_width: the words of the longest span.
        counting_layer: the network by which a label gets its vector.
    """

    # As in the config of a GLiNER: a text is read in windows of as many words as fit.
    embed_ent_token: ClassVar[bool] = True
    max_len: ClassVar[int] = LONGEST

    architecture: str = "span"
    max_width: int = Field(default=8, ge=1, le=MAX_WIDTH)
    span_mode: str = MARKER
    counting_layer: str = "count_lstm"
    token_pooling: str = "first"  # noqa: S105 - the name of a pooling

    @model_validator(mode="before")
    @classmethod
    def _joined(cls, values: Any) -> Any:
        """Return the values with the ones in `span_head`, and without nulls."""
        if not isinstance(values, dict):
            return values
        of_head = values.get("span_head")
        joined = {**values, **(of_head if isinstance(of_head, dict) else {})}
        return {name: each for name, each in joined.items() if each is not None}

    @property
    def subtoken_pooling(self) -> Pooling:
        """The tokens of a word whose vectors are read."""
        poolings: Mapping[str, Pooling] = {"mean": "mean", "max": "max"}
        return poolings.get(self.token_pooling, "first")


UNSUPPORTED: tuple[Problem[Gliner2Config], ...] = (
    (
        lambda own: own.architecture != "span",
        lambda own: f"has the architecture {quote(own.architecture)} of GLiNER2",
        USE_ANOTHER,
    ),
    (
        lambda own: own.span_mode != MARKER,
        lambda own: f"has the span_mode {quote(own.span_mode)}",
        f"use a checkpoint with {MARKER}",
    ),
    (
        lambda own: own.counting_layer not in LABEL_LAYERS,
        lambda own: f"has the counting_layer {quote(own.counting_layer)}",
        "use a checkpoint with count_lstm, count_lstm_v2 or count_lstm_moe",
    ),
)


@dataclass(frozen=True)
class Gliner2Checkpoint(Checkpoint):
    """A checkpoint of GLiNER2 without its weights; `config` is the config of its encoder."""

    head: Gliner2Config

    @classmethod
    def read(cls, directory: Path, handler: HandlerSection) -> Self:
        """Read the `config.json` in a directory, and the config of the encoder in its folder.

        Raises:
            WrongCheckpoint: one is missing or damaged, or says what this kit does not compute.
        """
        head = read_model(directory / CONFIG, Gliner2Config)
        check_supported(head, CONFIG, UNSUPPORTED)
        config = encoder_config(_encoder_values(directory), directory, GLINER2_ENCODER)
        return cls(directory, config, handler, head)

    def check(self, auto_class: str) -> None:
        """Check that transformers has the encoder, and that its tokenizer marks labels.

        Raises:
            WrongCheckpoint: it has not, or there is no token that marks them.
        """
        super().check(auto_class)
        check_tokens(self.tokenizer, [TASK, LABEL, TEXT, DESCRIPTION], CONFIG)

    @property
    def architecture(self) -> str:
        return "GLiNER2"

    @property
    def weight_names(self) -> Mapping[str, str]:
        return {f"^{ENCODER}".replace(".", r"\."): ""}

    @cached_property
    def limit(self) -> int | None:
        """The maximum number of tokens in a row.

        The package has none, and an encoder with relative positions has none either.
        """
        return LONGEST if has_any_length(self.config) else super().limit

    def prompt(self, labels: Sequence[str], descriptions: Sequence[str]) -> Prompt:
        """Return what a model reads before a text: the task, then each label.

        Args:
            descriptions: what each label means; a label that is its own description has none.
        """
        described = [
            f" {DESCRIPTION} {label}: {description}"
            for label, description in zip(labels, descriptions, strict=True)
            if description != label
        ]
        marked = [word for label in labels for word in (LABEL, label)]
        words = ["(", TASK, "".join([ENTITIES, *described]), "(", *marked, ")", ")", TEXT]
        return Prompt(words, [1, *range(4, 4 + len(marked), 2)])

    @cached_property
    def row_maker(self) -> RowMaker:
        """Makes rows of random tokens: a task, a label, and words of one token each."""
        return TaskRowMaker.of(self.text_tokenizer, self.vocab_size, self.pad_token_id)


class TaskRowMaker(LabelledRowMaker):
    """Makes rows whose first tokens are a task and a label, and whose others are words."""

    prompts = 2


class Gliner2Head(PoolingHead):
    """Logits at the first token of each word that is read, in float32; zeros at other tokens.

    Tokens with 1 in `prompt_numbers` are read for the task, tokens with other numbers for labels.

    Args:
        config: the config.
        weights: the weights of the whole checkpoint.
    """

    writes = OUTPUT
    inputs = (PROMPTS, WORDS)
    pools = False

    def __init__(self, config: Gliner2Config, weights: Weights) -> None:
        super().__init__()
        self.pooling = config.subtoken_pooling
        if len(weights["count_pred.2.weight"]) < 2:
            raise ValueError("count_pred.2.weight has a single row")
        self.count = linear_layers(weights, "count_pred", (0, 2))
        self.labels = LABEL_LAYERS[config.counting_layer](weights)
        self.spans = SpanScorer(weights, "span_rep.span_rep_layer", config.max_width)

    @not_compiled
    def outputs(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the logits of spans, (…, widths, labels), and the margin of the task, (…, 1)."""
        flat = values.float().flatten(0, 1)
        prompts, words = Places(inputs[PROMPTS], slots), Places(inputs[WORDS], slots)
        vectors = prompts.gather(flat, "first")
        labels = self.labels(vectors[:, 1:], prompts.counts - 1)
        found = self.spans(words.gather(flat, self.pooling), labels, words.counts)
        numbers = self.count(vectors[:, 0])
        margin = numbers[:, 1:].amax(1) - numbers[:, 0]
        margins = margin[:, None, None].expand(*vectors.shape[:2], 1)
        return {
            OUTPUT: words.scatter(found, len(flat)).unflatten(0, values.shape[:2]),
            MARGIN: prompts.scatter(margins, len(flat)).unflatten(0, values.shape[:2]),
        }

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        return self.outputs(values, slots, **inputs)[OUTPUT]


class _FirstStep(torch.nn.Module):
    """The first step of a recurrent network that begins with the vectors of labels.

    Further steps are for further structures, which entities do not have.
    """

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        position = weights["count_embed.pos_embedding.weight"][:1]
        self.cell = torch.nn.GRUCell(position.shape[1], position.shape[1])
        names = dict(self.cell.named_parameters())
        self.cell.load_state_dict({name: weights[f"count_embed.gru.{name}_l0"] for name in names})
        self.position: torch.Tensor
        self.register_buffer("position", position)

    def step(self, labels: torch.Tensor) -> torch.Tensor:
        """Return the state behind each label. Shape: (texts, labels, size)."""
        flat = labels.flatten(0, 1)
        found = self.cell(self.position.expand(len(flat), -1), flat)
        return torch.as_tensor(found.unflatten(0, labels.shape[:2]))


class _Projected(_FirstStep):
    """Labels by the step and by themselves."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self.layers = linear_layers(weights, "count_embed.projector", (0, 2))

    def forward(self, labels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layers(torch.cat([self.step(labels), labels], -1)))


class _Attending(_FirstStep):
    """Labels by the step, which attend to each other."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        name = "count_embed.transformer"
        self.before = linear(weights, f"{name}.in_projector")
        self.after = linear_layers(weights, f"{name}.out_projector", (0, 2, 4))
        prefix = f"{name}.transformer."
        own = {
            each.removeprefix(prefix): value
            for each, value in weights.items()
            if each.startswith(prefix)
        }
        inside, size = own["layers.0.linear1.weight"].shape
        layer = torch.nn.TransformerEncoderLayer(size, HEADS, inside, dropout=0.0, batch_first=True)
        count = len({each.split(".")[1] for each in own})
        self.encoder = torch.nn.TransformerEncoder(layer, count, enable_nested_tensor=False)
        self.encoder.load_state_dict(own)
        self.encoder.eval()

    def forward(self, labels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        found = self.step(labels) + labels
        numbers = torch.arange(labels.shape[1], device=labels.device)
        # A text without labels attends to all, because attention to none is not a number.
        hidden = (numbers >= counts[:, None]) & (counts > 0)[:, None]
        read = self.encoder(self.before(found), src_key_padding_mask=hidden)
        return torch.as_tensor(self.after(torch.cat([read, found], -1)))


class _Mixed(_FirstStep):
    """Labels by the step and by the experts that it chooses."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self.first, self.second = (linear(weights, f"count_embed.router.{n}") for n in (0, 2))
        names = ("w1", "b1", "w2", "b2")
        parts = [torch.nn.Parameter(weights[f"count_embed.{name}"]) for name in names]
        self.w1, self.b1, self.w2, self.b2 = parts

    def forward(self, labels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        found = self.step(labels)
        shares = self.second(gelu(self.first(found))).softmax(-1)
        inside = gelu(torch.einsum("tld,edh->tleh", found, self.w1) + self.b1)
        outside = torch.einsum("tleh,ehd->tled", inside, self.w2) + self.b2
        return (shares[..., None] * outside).sum(2)


LABEL_LAYERS: Mapping[str, Callable[[Weights], torch.nn.Module]] = {
    "count_lstm": _Projected,
    "count_lstm_v2": _Attending,
    "count_lstm_moe": _Mixed,
}


def read_gliner2_head(checkpoint: Gliner2Checkpoint) -> Gliner2Head:
    """Return the head of a checkpoint.

    Raises:
        WrongCheckpoint: weights are missing or do not fit.
    """
    return make_head(
        lambda weights: Gliner2Head(checkpoint.head, weights),
        checkpoint.directory,
        ENCODER,
        CONFIG,
    )


def _encoder_values(directory: Path) -> dict[str, Any]:
    """Return the config of the encoder, which is in a folder."""
    try:
        values: Any = read_json(directory / GLINER2_ENCODER)
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise WrongCheckpoint(
            GLINER2_ENCODER,
            "is missing or damaged, and it has the config of the encoder of a GLiNER2",
            "pack the folder encoder_config that was saved with the model",
        )
    return values
