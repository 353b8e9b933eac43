"""A text with masked tokens, to the tokens that fit there best.

    {"inputs": "Ada lived in [MASK]."}
    -> [{"score": 0.31, "token": 2414, "token_str": "london", "sequence": "ada lived in london."},
        …]

A text with several masks has such a list for each, in which the other masks stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import TypedDict

from ..batching.rows import Outputs, Row
from ..batching.tokenization import Window, tokenize
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..errors import (
    BadRequest,
    RequestError,
    RequestTooLarge,
    TextTooLong,
    WrongCheckpoint,
    attempt,
)
from ..types.model_info import ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames, check_text
from ..types.request import Request
from .bases.labels import softmax
from .bases.text import TextTask

MASK = "[MASK]"  # What clients may write, whatever the tokenizer's own mask token is.
# The scores of a mask are as many numbers as the vocabulary has tokens.
MAX_MASKS = 32
# Each has the whole text in the result.
MAX_FILLED = 500
MAX_TOKENS = 100
MAX_TARGETS = 1_000


class FillMaskParameters(Parameters):
    """Parameters of the fill-mask pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "tokenizer_kwargs": ({}, {"truncation": True})}
    )

    top_k: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 5
    """Number of tokens, best first."""
    targets: Annotated[list[str], Field(max_length=MAX_TARGETS)] | str | None = None
    """The only tokens to score, one or a list. Of a word that is no token, its first one counts."""


class FilledToken(TypedDict):
    """One token in the place of a mask, its probability, and the text with it."""

    score: float
    token: int
    token_str: str
    sequence: str


@dataclass(frozen=True)
class FillMaskInput:
    """One text with masks; `targets` are the only tokens to score, None for all."""

    text: str
    parameters: FillMaskParameters
    targets: Sequence[int] | None


class Task(TextTask[FillMaskInput, Window]):
    """Masked language modelling; answers as the fill-mask pipeline does."""

    auto_class = "AutoModelForMaskedLM"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[FilledToken] | list[list[FilledToken]],
            example={"inputs": "Ada lived in [MASK]."},
            result_columns=("token_str", "score"),
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
    )
    # The logits of all tokens leave the accelerator.
    accelerator_batch_tokens = one_row_batch_tokens = 1024
    parameters = FillMaskParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        if self.tokenizer.mask_token_id is None:
            raise WrongCheckpoint(
                "The tokenizer", "has no mask token", "use that of a masked language model"
            )
        self._vocabulary = self.tokenizer.get_vocab()

    @classmethod
    def example_inputs(cls, text: str) -> str:
        return f"{MASK} {text.partition(' ')[2]}"

    def parse(self, request: Request) -> FillMaskInput:
        parameters: FillMaskParameters = self.read_parameters(request.parameters)
        text = check_text(request.inputs, "inputs", self.max_characters)
        text = text.replace(MASK, self.tokenizer.mask_token)
        count = text.count(self.tokenizer.mask_token)
        if not count:
            raise BadRequest(f"inputs has no mask token; write {MASK} in the place of a word.")
        if count > MAX_MASKS:
            raise RequestTooLarge(
                f"inputs has {count:,} mask tokens, and this model takes {MAX_MASKS}; send fewer."
            )
        if count * parameters.top_k > MAX_FILLED:
            raise RequestTooLarge(
                f"inputs has {count} mask tokens, and top_k is {parameters.top_k}; a text is filled"
                f" at most {MAX_FILLED} times: send fewer masks, or a lower top_k."
            )
        return FillMaskInput(text, parameters, self._targets(parameters.targets))

    def encode(self, inputs: Sequence[FillMaskInput]) -> list[list[Window] | RequestError]:
        encoded = self.encode_texts([(item.text, None) for item in inputs])
        return [
            rows if isinstance(rows, RequestError) else attempt(self._with_masks, item, rows)
            for item, rows in zip(inputs, encoded, strict=True)
        ]

    def postprocess(self, row: Row, outputs: Outputs) -> Outputs:
        """Return the logits of the masks, without the logits of other tokens of the row."""
        return {name: value[self.mask_positions(row)] for name, value in outputs.items()}

    def decode(
        self, item: FillMaskInput, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        scores = softmax(outputs[0]["logits"])
        found = [list(self._fill(item, rows[0], number, own)) for number, own in enumerate(scores)]
        return found[0] if len(found) == 1 else found

    def mask_positions(self, row: Row) -> list[int]:
        """Return the positions of the mask tokens of a row."""
        mask, ids = self.tokenizer.mask_token_id, row.features["input_ids"]
        return [position for position, token in enumerate(ids) if token == mask]

    def token_of(self, word: str) -> int | None:
        """Return the token of a word, the first one of several; None where it has none."""
        token = self._vocabulary.get(word)
        if token is not None:
            return int(token)
        ids = tokenize(self.tokenizer, [(word, None)], add_special_tokens=False)["input_ids"][0]
        return int(ids[0]) if ids else None

    def _targets(self, words: list[str] | str | None) -> list[int] | None:
        if words is None:
            return None
        words = [words] if isinstance(words, str) else words
        names = (check_text(word, "targets", self.max_characters) for word in words)
        found = {token for token in map(self.token_of, names) if token is not None}
        if not found:
            raise BadRequest("targets has no token of this model's vocabulary; send at least one.")
        return sorted(found)

    def _with_masks(self, item: FillMaskInput, rows: list[Window]) -> list[Window]:
        if len(self.mask_positions(rows[0])) < item.text.count(self.tokenizer.mask_token):
            raise TextTooLong(
                "A mask token is behind the model's last position; send a shorter text."
            )
        return rows

    def _fill(
        self, item: FillMaskInput, row: Window, number: int, scores: npt.NDArray[np.float64]
    ) -> Iterator[FilledToken]:
        """Yield the best tokens in the place of one mask."""
        position = self.mask_positions(row)[number]
        for token in _best(scores, item.targets, item.parameters.top_k):
            yield {
                "score": float(scores[token]),
                "token": token,
                "token_str": str(self.tokenizer.decode([token])),
                "sequence": self._sequence(row, position, token),
            }

    def _sequence(self, row: Window, position: int, token: int) -> str:
        """Return the text of a row with a token in the place of a mask.

        Special tokens stay where there are other masks, which are special tokens.
        """
        ids = list(row.features["input_ids"])
        single = ids.count(self.tokenizer.mask_token_id) == 1
        ids[position] = token
        padding = self.tokenizer.pad_token_id
        shown = [each for each in ids if each != padding]
        return str(self.tokenizer.decode(shown, skip_special_tokens=single))


def _best(scores: npt.NDArray[np.float64], targets: Sequence[int] | None, count: int) -> list[int]:
    """Return the tokens with the highest scores, best first; only targets where there are any."""
    tokens = np.arange(len(scores)) if targets is None else np.asarray(targets)
    count = min(count, len(tokens))
    first = np.argpartition(-scores[tokens], count - 1)[:count]
    best = tokens[first]
    order: list[int] = best[np.lexsort((best, -scores[best]))].tolist()
    return order
