"""The text of generated tokens, decoded token by token.

The text of a token depends on its neighbours: the bytes of one character may be several tokens, and
a space before a word is dropped at the beginning of a text. Decoding the whole sequence again for
each new token takes quadratic time, so only its last tokens are decoded again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from handlers.compat.transformers import bytes_of_letters

AS_GENERATED = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
WITH_SPECIAL_TOKENS = {**AS_GENERATED, "skip_special_tokens": False}
# How many tokens are decoded again at most before a new one.
CONTEXT = 32
# How many tokens may wait for the rest of a character; after that their bytes are none.
MAX_INCOMPLETE = 16
MAX_BYTES = 4  # of a character in UTF-8
INCOMPLETE = "\ufffd"
# How SentencePiece writes a byte.
BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Tail:
    """The last tokens of a sequence, which the next ones are decoded after.

    Attributes:
        tokens: the tokens.
        complete: how many of them, from the first, end with a complete character.
        known: how many characters of their text were returned.
    """

    tokens: tuple[int, ...]
    complete: int
    known: int


@dataclass(frozen=True)
class IncrementalDecoder:
    """Decodes new tokens after a prompt; a state is a :class:`Tail`, which never changes.

    Attributes:
        tokenizer: the tokenizer.
        settings: the arguments of its `decode`.
    """

    tokenizer: PreTrainedTokenizerBase
    settings: Mapping[str, bool] = field(default_factory=AS_GENERATED.copy)

    def start(self, prompt: Sequence[int]) -> Tail:
        """Return the state after a prompt, whose text is known."""
        last = tuple(prompt[-CONTEXT:])
        # Cut within a character, bytes that are tokens would all decode to replacement characters.
        cuts = range(MAX_BYTES if len(prompt) > CONTEXT else 1)
        texts = ((last[cut:], self._decode(last[cut:])) for cut in cuts)
        begun = next((each for each in texts if not each[1].startswith(INCOMPLETE)), None)
        tokens, text = begun or (last, self._decode(last))
        return Tail(tokens, len(tokens), len(text))

    def add(self, tail: Tail, token: int) -> tuple[Tail, str]:
        """Return the state after one more token, and the text that further ones cannot change."""
        tokens = (*tail.tokens, token)
        text = self._decode(tokens)
        certain = text.rstrip(INCOMPLETE)
        is_broken = len(tokens) - tail.complete >= MAX_INCOMPLETE
        if certain != text and not is_broken:
            new = certain[tail.known :]
            return Tail(tokens, tail.complete, tail.known + len(new)), new
        # The last of broken bytes may still begin a character.
        certain = text if certain == text else text[:-1]
        new = certain[tail.known :]
        if not new and text and text == self._decode(tail.tokens):
            return tail, ""  # A special token: alone, it would cost the next word its space.
        held = len(text) - len(certain)
        return self._trimmed(Tail(tokens, tail.complete, len(certain)), held), new

    def rest(self, tail: Tail) -> str:
        """Return the text that :meth:`add` held back, where no further token comes."""
        return self._decode(tail.tokens)[tail.known :]

    def text_after(self, tail: Tail, token: int) -> str:
        """Return the text of one more token, where no further one comes; of a special one its name.

        A token that does not end a character has replacement characters.
        """
        if not tail.known or tail.complete < len(tail.tokens):
            return self._text_after(tail, token)
        # After other text, and outside of a character, a token has the same text everywhere.
        if token not in self._texts:
            self._texts[token] = self._text_after(tail, token)
        return self._texts[token]

    def is_special(self, token: int) -> bool:
        """Return whether a token is a special one, which has no text."""
        return token in self._special

    def hidden_names(self, texts: Sequence[str]) -> Mapping[int, str]:
        """Return the names of the tokens that are left out and that one of some texts has."""
        if not (texts and self.settings["skip_special_tokens"]):
            return {}
        names = {token: self._name(token) for token in self._special}
        return {
            token: name
            for token, name in names.items()
            if name and any(name in text for text in texts)
        }

    def part_of_character(self, token: int) -> bytes | None:
        """Return the bytes of a token that has a part of a character; None for other tokens."""
        if token not in self._parts:
            self._parts[token] = self._part_of_character(token)
        return self._parts[token]

    def decode(self, tail: Tail, new: Sequence[int]) -> str:
        """Return the text of new tokens, as if they were added one by one.

        Args:
            tail: the state after the prompt, as :meth:`start` returns it.
            new: the tokens.
        """
        before, whole = self._decode(tail.tokens), self._decode((*tail.tokens, *new))
        if whole.startswith(before) and INCOMPLETE not in whole[len(before) :]:
            return whole[len(before) :]
        parts = []
        for token in new:
            tail, part = self.add(tail, token)
            parts.append(part)
        return "".join(parts) + self.rest(tail)

    @cached_property
    def _special(self) -> frozenset[int]:
        # Many tokenizers leave the tokens of their chat templates out of `all_special_ids`.
        added = self.tokenizer.added_tokens_decoder.items()
        special = {number for number, token in added if token.special}
        return frozenset(special.union(self.tokenizer.all_special_ids))

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def _parts(self) -> dict[int, bytes | None]:
        return {}

    def _name(self, token: int) -> str:
        """Return a token as the vocabulary has it; empty for one that it has not."""
        return str(self.tokenizer.convert_ids_to_tokens(token) or "")

    def _text_after(self, tail: Tail, token: int) -> str:
        tail, new = self.add(tail, token)
        return new + self.rest(tail) or (self._name(token) if self.is_special(token) else "")

    def _part_of_character(self, token: int) -> bytes | None:
        name = self._name(token)
        found = BYTE.fullmatch(name)
        known = bytes_of_letters()
        if not found and not known.keys() >= set(name):
            return None
        raw = bytes.fromhex(found[1]) if found else bytes(known[letter] for letter in name)
        # Other tokenizers have letters of that alphabet, too.
        is_part = INCOMPLETE in raw.decode(errors="replace") and INCOMPLETE in self._decode([token])
        return raw if is_part else None

    def _trimmed(self, tail: Tail, held: int) -> Tail:
        """Return a state whose tokens are complete, with few of them.

        Args:
            tail: the state before its last token.
            held: how many characters at the end were not returned.
        """
        if len(tail.tokens) <= CONTEXT:
            return Tail(tail.tokens, len(tail.tokens), tail.known)
        tokens = tail.tokens[tail.complete :]
        return Tail(tokens, len(tokens), len(self._decode(tokens)) - held)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), **self.settings))


def decoders_of(tokenizer: PreTrainedTokenizerBase) -> Mapping[bool, IncrementalDecoder]:
    """Return the decoders of a tokenizer, by whether their texts have special tokens."""
    plain = IncrementalDecoder(tokenizer)
    return {False: plain, True: IncrementalDecoder(tokenizer, WITH_SPECIAL_TOKENS)}
