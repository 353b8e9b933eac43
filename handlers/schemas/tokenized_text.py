"""The tokens of a text, as a tokenizer made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text and its tokens.

    Attributes:
        text: the text; of a chat, the prompt of its template.
        ids: the ids of the tokens.
        offsets: begin and end of each token among the characters of the text, of shape
            (tokens, 2); both are 0 for a token that the tokenizer adds. None where the tokenizer
            does not know them.
        special: the names of the special tokens among them, by id.
        names: the name of each token where there are no offsets.
    """

    text: str
    ids: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64] | None
    special: Mapping[int, str]
    names: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ids)
