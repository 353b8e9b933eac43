"""How a terminal shows requests, answers and explanations, in a few lines each."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from PIL import Image, UnidentifiedImageError
from rich import box
from rich.console import Group
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from hf_serve.handlers.media.audio import seconds_of

SHOWN_INPUT, SHOWN_ANSWER, SHOWN_ITEMS, SHOWN_WORDS = 70, 105, 6, 5
LABEL, WEAK, ERROR = Style(bold=True), Style(dim=True), Style(color="red")
# From the colour of the weakest coloured word to the colour of the strongest.
FOR = ((178, 232, 178), (64, 180, 80))
AGAINST = ((250, 190, 182), (228, 74, 64))
# The importance, as a share of the largest, from which a word is coloured.
VISIBLE = 0.1


def exchange_table() -> Table:
    """Return an empty table with a row for each request: `table.add_row(request, answer)`."""
    columns = Column("request", min_width=37), Column("answer", overflow="fold")
    return Table(*columns, box=box.ROUNDED, show_lines=True)


def request_text(path: str, inputs: Any) -> Text:
    """Show where a request went and the beginning of its input."""
    return Text.assemble((path, LABEL), "\n", _shortened(_plain(inputs), SHOWN_INPUT))


def answer_text(answer: Any, inputs: Any) -> Text:
    """Show an answer of any task: its labels, entities, spans or texts, with their scores."""
    if isinstance(answer, Mapping) and "code" in answer:
        return Text(f"{answer['code']} {answer.get('message', '')}", ERROR)
    items = _items(answer)
    shown = [_item(item, inputs) for item in items[:SHOWN_ITEMS]]
    left_out = [Text(f"and {len(items) - len(shown)} more", WEAK)] if items[SHOWN_ITEMS:] else []
    return Text(", ").join(shown + left_out) if shown else Text("nothing found", WEAK)


def explanation_lines(explanation: Mapping[str, Any], inputs: Any) -> Group:
    """Show the input with its words coloured by importance, and name the strongest words.

    A word on green counted for the target; one on red, underlined, against it. Of an image its
    patches are shown.
    """
    if "heat_map" in explanation:
        return _coloured_patches(explanation["importances"])
    importances = _importances(explanation)
    largest = max(map(abs, importances), default=0.0) or 1.0
    texts = [Text(each) for each in _explained_texts(explanation, inputs)]
    words: dict[str, float] = {}
    places = zip(explanation["sequence_ids"], explanation["offsets"], importances, strict=True)
    for sequence, (start, end), importance in places:
        if sequence is not None and abs(importance / largest) >= VISIBLE:
            texts[sequence].stylize(_style(importance / largest), start, end)
            word = texts[sequence].plain[start:end]
            words[word] = max(words.get(word, 0.0), importance, key=abs)
    return Group(*texts, "", _strongest("For it", 1, words), _strongest("Against it", -1, words))


def target_of(explanation: Mapping[str, Any]) -> str:
    """Return what an explanation is about: a label, or a part of the text."""
    return _shortened(" ".join(_strings(explanation["target"])), SHOWN_INPUT)


def _items(answer: Any) -> list[Any]:
    """Return the parts of an answer; one with lists of labels or masks has a part for each."""
    if isinstance(answer, Mapping) and "labels" in answer:
        pairs = zip(answer["labels"], answer["scores"], strict=True)
        return [{"label": label, "score": score} for label, score in pairs]
    if isinstance(answer, Mapping) and "masks" in answer:
        return [{"label": "mask", "score": score} for score in answer["scores"]]
    return answer if isinstance(answer, list) else [answer]


def _item(item: Any, inputs: Any) -> Text:
    strings = _strings(item)
    if isinstance(item, str) or not strings:
        return Text(_shortened(json.dumps(_rounded(item), ensure_ascii=False), SHOWN_ANSWER))
    if "word" in item:
        # The input has the entity as it was written; the tokenizer's words may be in lower case.
        word = inputs[item["start"] : item["end"]] if isinstance(inputs, str) else item["word"]
        return Text.assemble(word, " ", (strings[0], LABEL))
    continues = isinstance(inputs, str) and strings[0].startswith(inputs)
    text = f"… {strings[0].removeprefix(inputs).lstrip()}" if continues else _readable(strings[0])
    score = "" if item.get("score") is None else f" {item['score']:.1%}"
    return Text.assemble((_shortened(text, SHOWN_ANSWER), LABEL), score)


def _coloured_patches(importances: Sequence[Sequence[float]]) -> Group:
    """Show the patches of an image, two characters each, coloured by importance."""
    largest = max(abs(value) for row in importances for value in row) or 1.0
    lines = [
        Text.assemble(*(_patch(value / largest) for value in row), no_wrap=True)
        for row in importances
    ]
    return Group(*lines)


def _patch(share: float) -> tuple[str, Style]:
    sign = " +" if share > 0 else " -"
    return (sign, _style(share)) if abs(share) >= VISIBLE else (" .", WEAK)


def _importances(explanation: Mapping[str, Any]) -> list[float]:
    """Return one number a word; an answer's span has two lists, of which the first is its start."""
    named = (value for key, value in explanation.items() if key.startswith("importances"))
    return list(next(named))


def _style(share: float) -> Style:
    """Return the colours of a word by its share of the largest importance, from -1 to 1."""
    ends = zip(*(FOR if share > 0 else AGAINST), strict=True)
    red, green, blue = (round(weak + abs(share) * (strong - weak)) for weak, strong in ends)
    return Style(color="black", bgcolor=f"rgb({red},{green},{blue})", underline=share < 0)


def _strongest(title: str, sign: int, words: Mapping[str, float]) -> Text:
    ranked = sorted(words.items(), key=lambda each: -sign * each[1])
    shown = [f"{word} {value:+.2f}" for word, value in ranked[:SHOWN_WORDS] if sign * value > 0]
    return Text.assemble((title, _style(sign)), ": ", ", ".join(shown) or "no word")


def _strings(item: Any) -> list[str]:
    values = item.values() if isinstance(item, Mapping) else [item]
    return [value for value in values if isinstance(value, str)]


def _explained_texts(explanation: Mapping[str, Any], inputs: Any) -> list[str]:
    """Return the texts that the offsets of an explanation refer to.

    The explanation or the input has them; otherwise they are the words at their offsets.
    """
    if "texts" in explanation:
        return list(explanation["texts"])
    sequences = [number for number in explanation["sequence_ids"] if number is not None]
    count = 1 + max(sequences, default=-1)
    texts = _texts(inputs)
    complete = isinstance(inputs, str) or len(texts) == len(inputs)
    if complete and len(texts) >= count:
        return texts
    return [_words_at_their_offsets(explanation, sequence) for sequence in range(count)]


def _words_at_their_offsets(explanation: Mapping[str, Any], sequence: int) -> str:
    keys = ("words", "offsets", "sequence_ids")
    places = zip(*(explanation[key] for key in keys), strict=True)
    text = ""
    for word, (start, end), number in places:
        if number == sequence:
            text = text.ljust(start) + word.removeprefix("##")[: end - start].ljust(end - start)
    return text


def _texts(inputs: Any) -> list[str]:
    """Return the texts of an input in the order of its sequences: one text, or a pair."""
    return [inputs] if isinstance(inputs, str) else _strings(inputs)


def _plain(inputs: Any) -> str:
    texts = _texts(inputs) if isinstance(inputs, str | Mapping) else []
    return " / ".join(map(_readable, texts)) or json.dumps(inputs, ensure_ascii=False)


def _readable(text: str) -> str:
    """Return what is in a text that is an image or a sound in base64; any other text as it is."""
    try:
        file = base64.b64decode(text, validate=True)
        with Image.open(BytesIO(file)) as image:
            return f"image of {image.width} x {image.height} pixels"
    except UnidentifiedImageError:
        seconds = seconds_of(file)
        return text if seconds is None else f"sound of {seconds:.2f} seconds"
    except ValueError:  # no base64
        return text


def _shortened(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder=" …")


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value
