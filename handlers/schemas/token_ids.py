"""A prompt that its sender has tokenized, as OpenAI's `completions` takes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding

from handlers.batching.tokenization import Window
from handlers.errors import BadRequest


@dataclass(frozen=True)
class TokenIds:
    """Ids of the model's own vocabulary, to which nothing is added."""

    ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def check(self, vocabulary: int) -> None:
        """Check that there are some and that the model knows each.

        Raises:
            BadRequest: there are none, or with the first that it does not know.
        """
        if not self.ids:
            raise BadRequest("The prompt is an empty list of token ids; send at least one.")
        strange = next((number for number in self.ids if not 0 <= number < vocabulary), None)
        if strange is not None:
            raise BadRequest(
                f"The prompt has the token {strange}, and this model's go from 0 to"
                f" {vocabulary - 1:,}; send a text, or ids of this model's tokenizer."
            )

    def cut(self, longest: int, side: str) -> TokenIds:
        """Return at most so many of them; what is too much goes on the `left` or the `right`."""
        return TokenIds(self.ids[-longest:] if side == "left" else self.ids[:longest])

    def window(self, names: Sequence[str]) -> Window:
        """Return the row that they are; where its tokens lie in a text is not known."""
        others = {name: [0] * len(self) for name in names if name != "attention_mask"}
        return Window({**others, "input_ids": list(self.ids)}, Encoding())
