"""Segments of a question and its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from tokenizers import Encoding
from transformers import PreTrainedTokenizerBase

from handlers.batching.rows import Row
from handlers.batching.tokenization import Window, tokenize
from handlers.explainers._segments import Segment, segment_tokens
from handlers.tasks._tables import PREVIOUS, Table
from handlers.types.parameters import Granularity

# Row and column; no row for the name of a column, and None for a token of the question.
Coordinates = tuple[int | None, int] | None


@dataclass(frozen=True)
class TableSegments:
    """The segments of a row, and what they are segments of.

    Attributes:
        segments: the segments, with character offsets in one of the texts each.
        texts: the question, and the names and cells that the row has, in its order.
        coordinates: the place of each segment in the table.
    """

    segments: list[Segment]
    texts: list[str]
    coordinates: list[Coordinates]


def segment_table(
    row: Row,
    question: str,
    table: Table,
    tokenizer: PreTrainedTokenizerBase,
    granularity: Granularity,
) -> TableSegments:
    """Return the segments of a question with its table.

    Args:
        row: the row, of a tokenizer without character offsets.
        question: the question.
        table: the table.
        tokenizer: a tokenizer of texts with the same vocabulary.
        granularity: whether a segment is a token or a word.
    """
    places = [_coordinates(row, token) for token in range(len(row))]
    # [CLS] is the first token, and [SEP] is between question and table.
    ends = (0, places.count(None) - 1)
    inner = [token for token in range(len(row)) if token not in ends]
    parts = [list(tokens) for _, tokens in groupby(inner, key=lambda token: places[token])]
    texts = [_text(places[tokens[0]], question, table) for tokens in parts]
    encodings = tokenize(tokenizer, [(text, None) for text in texts], add_special_tokens=False)
    segments = [Segment(_token(row, end, tokenizer), 0, 0, (end,), None) for end in ends]
    for sequence, (text, tokens) in enumerate(zip(texts, parts, strict=True)):
        found = _segments(row, text, tokens, encodings.encodings[sequence], granularity)
        segments += [replace(segment, sequence=sequence) for segment in found]
    segments.sort(key=lambda segment: segment.tokens)
    return TableSegments(segments, texts, [places[segment.tokens[0]] for segment in segments])


def _coordinates(row: Row, token: int) -> Coordinates:
    in_table, column, line = row.features["token_type_ids"][token][:PREVIOUS]
    return (line - 1 if line else None, column - 1) if in_table else None


def _text(place: Coordinates, question: str, table: Table) -> str:
    if place is None:
        return question
    line, column = place
    return table.names[column] if line is None else table.columns[column][line]


def _token(row: Row, number: int, tokenizer: PreTrainedTokenizerBase) -> str:
    return str(tokenizer.convert_ids_to_tokens(row.features["input_ids"][number]))


def _segments(
    row: Row, text: str, tokens: Sequence[int], encoding: Encoding, granularity: Granularity
) -> list[Segment]:
    """Return the segments of one text; one that is tokenized otherwise in tables is one segment."""
    encoding.truncate(len(tokens))
    if encoding.ids != [row.features["input_ids"][token] for token in tokens]:
        return [Segment(text, 0, len(text), tuple(tokens), 0)]
    window = Window({"input_ids": encoding.ids}, encoding)
    return [
        replace(segment, tokens=tuple(tokens[number] for number in segment.tokens))
        for segment in segment_tokens(window, [text], granularity)
    ]
