"""The text of generated tokens, decoded token by token.

The text of a token depends on its neighbours: the bytes of one character may be several tokens, and
a tokenizer drops the space before the first word of a text. Decoding the whole sequence again for
each new token takes quadratic time, so only its last tokens are decoded again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from transformers import PreTrainedTokenizerBase

from ..compat.transformers import bytes_of_letters

AS_GENERATED = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
WITH_SPECIAL_TOKENS = {**AS_GENERATED, "skip_special_tokens": False}
# The maximum number of tokens that are decoded again with a new one.
CONTEXT = 32
# The maximum number of tokens of an incomplete character; more tokens are broken bytes.
MAX_INCOMPLETE = 16
MAX_BYTES = 4  # of a character in UTF-8
INCOMPLETE = "\ufffd"
# How SentencePiece writes a byte.
BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class DecoderState:
    """The last tokens of a sequence, after which the next ones are decoded.

    Attributes:
        tokens: the tokens.
        complete: the number of first tokens that end with a complete character.
        known: the number of characters of their text that were returned.
    """

    tokens: tuple[int, ...]
    complete: int
    known: int


@dataclass(frozen=True)
class IncrementalDecoder:
    """Decodes new tokens after a prompt. `settings` are arguments of the tokenizer's `decode`."""

    tokenizer: PreTrainedTokenizerBase
    settings: Mapping[str, bool] = field(default_factory=AS_GENERATED.copy)

    def start(self, prompt: Sequence[int]) -> DecoderState:
        """Return the state after a prompt."""
        last = tuple(prompt[-CONTEXT:])
        # The rest of a character that is cut would decode to replacement characters.
        cuts = range(MAX_BYTES if len(prompt) > CONTEXT else 1)
        texts = ((last[cut:], self._decode(last[cut:])) for cut in cuts)
        begun = next((each for each in texts if not each[1].startswith(INCOMPLETE)), None)
        tokens, text = begun or (last, self._decode(last))
        return DecoderState(tokens, len(tokens), len(text))

    def add(self, state: DecoderState, token: int) -> tuple[DecoderState, str]:
        """Return the state after one more token, and the new text that others cannot change."""
        tokens = (*state.tokens, token)
        text = self._decode(tokens)
        certain = text.rstrip(INCOMPLETE)
        is_broken = len(tokens) - state.complete >= MAX_INCOMPLETE
        if certain != text and not is_broken:
            new = certain[state.known :]
            return DecoderState(tokens, state.complete, state.known + len(new)), new
        # The last of broken bytes may still begin a character.
        certain = text if certain == text else text[:-1]
        new = certain[state.known :]
        if not new and text and text == self._decode(state.tokens):
            return state, ""  # A special token would cost the next word its space.
        held = len(text) - len(certain)
        return self._trimmed(DecoderState(tokens, state.complete, len(certain)), held), new

    def rest(self, state: DecoderState) -> str:
        """Return the text that :meth:`add` held back, at the end of a sequence."""
        return self._decode(state.tokens)[state.known :]

    def text_after(self, state: DecoderState, token: int) -> str:
        """Return the text of one more token as the last one, or the name of a special token.

        The text of an incomplete character has replacement characters.
        """
        if not state.known or state.complete < len(state.tokens):
            return self._text_after(state, token)
        # After text that ends with a complete character, a token always has the same text.
        if token not in self._texts:
            self._texts[token] = self._text_after(state, token)
        return self._texts[token]

    def is_special(self, token: int) -> bool:
        """Return whether a token is a special one."""
        return token in self._special

    def has_text(self, token: int) -> bool:
        """Return whether a token is in the vocabulary, and not a special one."""
        return not self.is_special(token) and bool(self._name(token))

    def hidden_names(self, texts: Sequence[str]) -> Mapping[int, str]:
        """Return the names of the omitted special tokens that occur in one of some texts."""
        if not (texts and self.settings["skip_special_tokens"]):
            return {}
        names = {token: self._name(token) for token in self._special}
        return {
            token: name
            for token, name in names.items()
            if name and any(name in text for text in texts)
        }

    def part_of_character(self, token: int) -> bytes | None:
        """Return the bytes of a token that is a part of a character; None for other tokens."""
        if token not in self._parts:
            self._parts[token] = self._part_of_character(token)
        return self._parts[token]

    def decode(self, state: DecoderState, new: Sequence[int]) -> str:
        """Return the text of new tokens after the state of a prompt, as :meth:`add` returns it."""
        before, whole = self._decode(state.tokens), self._decode((*state.tokens, *new))
        if whole.startswith(before) and INCOMPLETE not in whole[len(before) :]:
            return whole[len(before) :]
        parts = []
        for token in new:
            state, part = self.add(state, token)
            parts.append(part)
        return "".join(parts) + self.rest(state)

    @cached_property
    def _special(self) -> frozenset[int]:
        # In many tokenizers, `all_special_ids` lacks the tokens of the chat template.
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
        """Return a token's name in the vocabulary; empty for a token that is not in it."""
        return str(self.tokenizer.convert_ids_to_tokens(token) or "")

    def _text_after(self, state: DecoderState, token: int) -> str:
        state, new = self.add(state, token)
        return new + self.rest(state) or (self._name(token) if self.is_special(token) else "")

    def _part_of_character(self, token: int) -> bytes | None:
        name = self._name(token)
        found = BYTE.fullmatch(name)
        known = bytes_of_letters()
        if not found and not known.keys() >= set(name):
            return None
        raw = bytes.fromhex(found[1]) if found else bytes(known[letter] for letter in name)
        # Tokens of other tokenizers may consist of the same letters.
        is_part = INCOMPLETE in raw.decode(errors="replace") and INCOMPLETE in self._decode([token])
        return raw if is_part else None

    def _trimmed(self, state: DecoderState, held: int) -> DecoderState:
        """Return a state with few tokens, all of them complete.

        Args:
            state: the state before its last token.
            held: the number of characters at the end that were not returned.
        """
        if len(state.tokens) <= CONTEXT:
            return DecoderState(state.tokens, len(state.tokens), state.known)
        tokens = state.tokens[state.complete :]
        return DecoderState(tokens, len(tokens), len(self._decode(tokens)) - held)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), **self.settings))


def decoders_of(tokenizer: PreTrainedTokenizerBase) -> Mapping[bool, IncrementalDecoder]:
    """Return the decoders of a tokenizer, by whether their texts have special tokens."""
    plain = IncrementalDecoder(tokenizer)
    return {False: plain, True: IncrementalDecoder(tokenizer, WITH_SPECIAL_TOKENS)}
