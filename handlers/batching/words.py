"""Rows of whole words behind a prompt, as models read them that score spans of words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..errors import TextTooLong
from .rows import Row
from .tokenization import IN_TURN, features

# What GLiNER calls a word: letters and digits with hyphens among them, or any other character.
WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
# The planes of Unicode that have marks of letters, such as vowel signs, which are no letters.
PLANES_WITH_MARKS = (range(0x20000), range(0xE0000, 0xE0200))
# The most characters of an e-mail address before its `@` (RFC 5321), which bounds the search.
LOCAL_PART = 64
# Inputs of a row: the number of the prompt, or of the word of the window, whose vector is read at a
# token, from 1; 0 at other tokens.
PROMPTS, WORDS = "prompt_numbers", "word_numbers"


@dataclass(frozen=True)
class Word:
    """A word by its first character in the text, and the one after its last.

    A word that a model reads behind the text has no characters in it.
    """

    start: int
    end: int


@dataclass(frozen=True)
class WordTokens:
    """The tokens of a window, by the names of `tokenizers.Encoding`; `word_ids` count in the text.

    Tokens of the prompt are special ones.
    """

    tokens: Sequence[str]
    offsets: Sequence[tuple[int, int]]
    special_tokens_mask: Sequence[int]
    sequence_ids: Sequence[int | None]
    word_ids: Sequence[int | None]


@dataclass(frozen=True)
class WordWindow(Row):
    """A row with the prompt and consecutive words of a text.

    Attributes:
        first: the number of its first word in the text.
        count: the number of its words.
        is_last: whether the text ends in it.
        encoding: its tokens.
    """

    first: int
    count: int
    is_last: bool
    encoding: WordTokens

    @property
    def last(self) -> int:
        """The number of its last word in the text."""
        return self.first + self.count - 1


@dataclass(frozen=True)
class Prompt:
    """What a model reads before a text.

    Attributes:
        words: its words.
        read: the words whose first token is read, or the token behind it.
    """

    words: Sequence[str]
    read: Sequence[int]


def split_words(text: str, pattern: re.Pattern[str] = WORD) -> list[Word]:
    """Return the words of a text."""
    return [Word(*match.span()) for match in pattern.finditer(text)]


@cache
def pattern_with_addresses() -> re.Pattern[str]:
    """Return what GLiNER2 calls a word: a web or e-mail address, a name behind `@`, or a word.

    Marks of letters, and characters that join them, belong to a word.
    """
    marks = "".join(
        character
        for plane in PLANES_WITH_MARKS
        for character in map(chr, plane)
        if unicodedata.category(character)[0] == "M"
    )
    letter = rf"[\w{marks}\u200c\u200d]"
    kinds = (
        r"(?:https?://|www\.)\S+",
        rf"[a-z0-9._%+-]{{1,{LOCAL_PART}}}+@[a-z0-9.-]+\.[a-z]{{2,}}",
        r"@[a-z0-9_]+",
        rf"{letter}+(?:[-_]{letter}+)*",
        r"\S",
    )
    return re.compile("|".join(kinds), re.IGNORECASE)


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Sequence[str]], *, framed: bool = True
) -> BatchEncoding:
    """Tokenize texts that are lists of words, each word by itself.

    Args:
        framed: whether special tokens of the tokenizer are around each text.
    """
    with IN_TURN:
        return tokenizer(
            [list(words) for words in texts],
            is_split_into_words=True,
            add_special_tokens=framed,
            verbose=False,
        )


@dataclass(frozen=True)
class WindowLimits:
    """How long a window may be.

    Attributes:
        tokens: its tokens, with the prompt and special ones; None for no limit.
        words: its words.
        overlap: words that two windows share.
        windows: windows of a text.
    """

    tokens: int | None
    words: int
    overlap: int
    windows: int


@dataclass(frozen=True)
class PromptedText:
    """A prompt and a text as tokens.

    Attributes:
        words: the places of the words in the text, without the words of the prompt.
        prompt: the number of words of the prompt.
        prompt_tokens: the place of the token of each prompt whose vector is read.
        pooling: the tokens of a word whose vectors are read: `first`, `last`, or all for others.
    """

    features: dict[str, list[int]]
    encoding: Any
    words: Sequence[Word]
    prompt: int
    prompt_tokens: Sequence[int]
    pooling: str

    @classmethod
    def of(
        cls,
        encoding: BatchEncoding,
        index: int,
        names: Sequence[str],
        words: Sequence[Word],
        prompts: Sequence[int],
        prompt: int,
        pooling: str,
        *,
        behind: bool = False,
    ) -> PromptedText:
        """Return one text of :func:`tokenize_words`.

        Args:
            index: its number.
            names: names of the inputs of the model.
            prompts: the word of each prompt whose first token is read.
            prompt: the number of words of the prompt.
            behind: whether the token behind it is read instead.
        """
        first = _first_tokens(encoding.encodings[index].word_ids)
        places = [first[number] + behind for number in prompts]
        own = features(encoding, index, names)
        return cls(own, encoding.encodings[index], words, prompt, places, pooling)

    @property
    def frame(self) -> tuple[int, int]:
        """The place of the first token of the text, and of the one after its last."""
        ids = self.encoding.word_ids
        last = max(place for place, word in enumerate(ids) if word is not None)
        inside = (place for place, word in enumerate(ids) if word is not None)
        start = next((place for place in inside if ids[place] >= self.prompt), last + 1)
        return start, last + 1

    def windows(self, limits: WindowLimits) -> list[WordWindow]:
        """Return the windows of the text; all of them have the prompt.

        A word with more tokens than a window has room for is cut.

        Raises:
            RequestTooLarge: the prompt leaves no room, or there are too many windows.
        """
        start, end = self.frame
        around = len(self.encoding.ids) - (end - start)
        room = len(self.encoding.ids) if limits.tokens is None else limits.tokens - around
        if room < 1:
            raise prompt_too_long(around, limits.tokens or 0)
        spans = self._places(start, end)
        found: list[WordWindow] = []
        first = 0
        while True:
            count = _fitting(spans[first : first + limits.words], room)
            is_last = first + count >= len(spans)
            found.append(self._window(spans, (start, end), first, count, room, is_last=is_last))
            if is_last:
                return found
            if len(found) == limits.windows:
                raise TextTooLong(
                    f"the text has {len(spans):,} words, which are more than {limits.windows:,}"
                    " windows with these labels, and this model takes no more; send a shorter text,"
                    " or fewer labels."
                )
            first += max(1, count - limits.overlap)

    def _places(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the places of the tokens of each word; a word without tokens has none."""
        places = [(0, 0)] * len(self.words)
        ids = self.encoding.word_ids
        for place in range(start, end):
            number = ids[place] - self.prompt
            first = places[number][0] or place
            places[number] = (first, place + 1)
        return places

    def _window(
        self,
        spans: Sequence[tuple[int, int]],
        frame: tuple[int, int],
        first: int,
        count: int,
        room: int,
        *,
        is_last: bool,
    ) -> WordWindow:
        start, end = frame
        inside = [
            (place, number)
            for number in range(first, first + count)
            for place in range(*spans[number])
        ][:room]
        chosen = [*range(start), *(place for place, _ in inside), *range(end, len(self.encoding))]
        numbers = [0] * len(chosen)
        for column, (place, number) in enumerate(inside, start):
            if self._is_read(place, spans[number], column == start + len(inside) - 1):
                numbers[column] = number - first + 1
        prompts = [0] * len(chosen)
        for number, column in enumerate(self.prompt_tokens, 1):
            prompts[column] = number
        inputs = {name: [ids[place] for place in chosen] for name, ids in self.features.items()}
        words = {
            column: number
            for column, (_, number) in enumerate(inside, start)
            if self.words[number].end > self.words[number].start
        }
        tokens = self._tokens(chosen, words)
        return WordWindow(
            {**inputs, PROMPTS: prompts, WORDS: numbers}, first, count, is_last, tokens
        )

    def _is_read(self, place: int, span: tuple[int, int], is_cut_here: bool) -> bool:
        if self.pooling == "first":
            return place == span[0]
        return self.pooling != "last" or place == span[1] - 1 or is_cut_here

    def _tokens(self, chosen: Sequence[int], words: dict[int, int]) -> WordTokens:
        columns = range(len(chosen))
        numbers = [words.get(column) for column in columns]
        return WordTokens(
            tokens=[self._texts[place] for place in chosen],
            offsets=[
                (0, 0) if number is None else self._offset(self._offsets[place], number)
                for place, number in zip(chosen, numbers, strict=True)
            ],
            special_tokens_mask=[int(number is None) for number in numbers],
            sequence_ids=[None if number is None else 0 for number in numbers],
            word_ids=numbers,
        )

    # An encoding makes a list of all tokens each time that it is asked for one.
    @cached_property
    def _texts(self) -> list[str]:
        return list(self.encoding.tokens)

    @cached_property
    def _offsets(self) -> list[tuple[int, int]]:
        return list(self.encoding.offsets)

    def _offset(self, offset: tuple[int, int], number: int) -> tuple[int, int]:
        """Return the place of a token in the text, from its place in its word.

        A model may read a longer word than the text has: lower case can have more characters.
        """
        word = self.words[number]
        return min(word.start + offset[0], word.end), min(word.start + offset[1], word.end)


@dataclass(frozen=True)
class LabelledText:
    """Labels and a text in one string, which is tokenized as a whole.

    Attributes:
        marks: the first character of the token before each label.
        end: the first character of the token behind all labels.
        text: the first character of the text.
    """

    string: str
    marks: Sequence[int]
    end: int
    text: int

    @classmethod
    def write(
        cls, labels: Sequence[str], text: str, tokens: tuple[str, str], *, labels_first: bool
    ) -> LabelledText:
        """Write labels before a text, or behind it.

        Args:
            tokens: the token before each label, and the token behind all of them.
        """
        before, behind = tokens
        parts = [f"{before}{label}" for label in labels]
        start = 0 if labels_first else len(text)
        marks = list(accumulate(map(len, parts), initial=start))
        prompt = "".join([*parts, behind])
        string = prompt + text if labels_first else text + prompt
        return cls(string, marks[:-1], marks[-1], len(prompt) if labels_first else 0)


@dataclass(frozen=True)
class LabelledTokens:
    """The tokens of a :class:`LabelledText`, of which the text may be truncated.

    Attributes:
        places: their places in the encoding of the whole string.
        marks: the number of the token before each label, among these tokens.
        end: the number of the token behind all labels.
        tokens: their texts and offsets; tokens that are not in the text are special ones.
    """

    places: Sequence[int]
    marks: Sequence[int]
    end: int
    tokens: WordTokens

    @classmethod
    def of(cls, text: LabelledText, encoding: Any, limit: int | None) -> LabelledTokens:
        """Return the tokens of a row, without those at the end of the text that do not fit.

        Args:
            encoding: the encoding of the string.
            limit: the maximum number of tokens; None for no limit.

        Raises:
            RequestTooLarge: the labels leave no room for the text.
        """
        whole = range(len(encoding.ids))
        framed = encoding.special_tokens_mask
        marks = [encoding.char_to_token(each) for each in text.marks]
        end = encoding.char_to_token(text.end)
        inside = range(end + 1, len(whole)) if text.text else range(marks[0])
        own = [place for place in inside if not framed[place]]
        around = len(whole) - len(own)
        room = len(own) if limit is None else limit - around
        if room < min(1, len(own)):
            raise prompt_too_long(around, limit or 0)
        dropped = {*own[room:]}
        places = [place for place in whole if place not in dropped]
        read = {*own[:room]}
        shift = 0 if text.text else -len(dropped)
        return cls(
            places,
            [each + shift for each in marks],
            end + shift,
            WordTokens(
                tokens=[encoding.tokens[place] for place in places],
                offsets=[
                    _moved(encoding.offsets[place], -text.text) if place in read else (0, 0)
                    for place in places
                ],
                special_tokens_mask=[int(place not in read) for place in places],
                sequence_ids=[0 if place in read else None for place in places],
                word_ids=[encoding.word_ids[place] if place in read else None for place in places],
            ),
        )


def prompt_too_long(tokens: int, limit: int) -> TextTooLong:
    """Return the error of labels that leave no room for a text."""
    return TextTooLong(
        f"the labels have {tokens:,} tokens with the special ones, and this model takes"
        f" {limit:,} with the text; send fewer or shorter labels."
    )


def _moved(offset: tuple[int, int], by: int) -> tuple[int, int]:
    return max(0, offset[0] + by), offset[1] + by


def _first_tokens(word_ids: Sequence[int | None]) -> dict[int, int]:
    """Return the place of the first token of each word."""
    found: dict[int, int] = {}
    for place, number in enumerate(word_ids):
        if number is not None:
            found.setdefault(number, place)
    return found


def _fitting(spans: Sequence[tuple[int, int]], room: int) -> int:
    """Return how many words fit, at least one."""
    tokens = 0
    for count, (start, end) in enumerate(spans):
        tokens += end - start
        if tokens > room:
            return max(1, count)
    return len(spans)
