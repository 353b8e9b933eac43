"""The words of a page with their boxes, as a request has them."""

from __future__ import annotations

import math
from typing import Any

from handlers.errors import BadRequest, RequestTooLarge, TextTooLong
from handlers.media.ocr import SCALE, WordBoxes
from handlers.schemas.text_checks import json_type, parse_json

MAX_WORDS = 50_000
# A word with its box in JSON.
JSON_CHARACTERS = 100
FORM = '[["word", [left, top, right, bottom]], …]'


def read_word_boxes(value: Any, max_characters: int) -> WordBoxes:
    """Return the words of a request: a list of pairs, or the JSON text of one.

    Args:
        value: the value in the request.
        max_characters: the maximum number of characters of the words.

    Raises:
        BadRequest: it is no list of words with boxes, is empty, or a box is not within the page.
        RequestTooLarge: there are too many words or characters.
    """
    pairs = parse_json(value, "word_boxes", MAX_WORDS * JSON_CHARACTERS)
    if not isinstance(pairs, list):
        raise BadRequest(f"word_boxes must be {FORM}, and is {json_type(pairs)}.")
    if not pairs:
        raise BadRequest(f"word_boxes is empty; send {FORM}.")
    if len(pairs) > MAX_WORDS:
        raise RequestTooLarge(
            f"word_boxes has {len(pairs):,} words, and {MAX_WORDS:,} are allowed."
        )
    words = [_word(pair, number) for number, pair in enumerate(pairs)]
    characters = sum(map(len, words))
    if characters > max_characters:
        raise TextTooLong(
            f"word_boxes has {characters:,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    return WordBoxes(words, [_box(pair[1], number) for number, pair in enumerate(pairs)])


def _word(pair: Any, number: int) -> str:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise BadRequest(f"word_boxes[{number}] is no word with its box; send {FORM}.")
    word = pair[0]
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise BadRequest(
            f"word_boxes[{number}] has half of a surrogate pair; send whole characters."
        ) from None
    return word


def _box(value: Any, number: int) -> list[int]:
    if not isinstance(value, (list, tuple)) or len(value) != 4 or not all(map(_is_number, value)):
        raise BadRequest(
            f"word_boxes[{number}] has no box of four numbers; send {FORM}, from 0 to {SCALE}."
        )
    left, top, right, bottom = box = [int(each) for each in value]
    if not (0 <= left <= right <= SCALE and 0 <= top <= bottom <= SCALE):
        raise BadRequest(
            f"word_boxes[{number}] has a box that is not within the page; send left, top, right and"
            f" bottom in thousandths of its width and height, from 0 to {SCALE}."
        )
    return box


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, int) or math.isfinite(value)
