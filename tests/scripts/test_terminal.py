"""What the demo prints, with and without colour."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console, RenderableType

from hf_serve.handlers.media.audio import wav_in_base64
from hf_serve.handlers.media.images import png_in_base64
from hf_serve.scripts.terminal import (
    answer_text,
    exchange_table,
    explanation_lines,
    request_text,
    target_of,
)

TEXT = "Small rooms, but a wonderful breakfast."
IMAGE = png_in_base64(Image.new("L", (6, 4)))
SPAN = {"score": 0.92371, "start": 4, "end": 8, "answer": "Lund"}
ENTITIES = [
    {"entity_group": "PER", "score": 0.9, "word": "ada lovelace", "start": 0, "end": 12},
    {"entity_group": "LOC", "score": 0.9, "word": "london", "start": 22, "end": 28},
]


def plain(shown: RenderableType, width: int = 80) -> str:
    """Return what a console that is no terminal prints."""
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(shown)
    return console.export_text().rstrip("\n")


def coloured(shown: RenderableType) -> str:
    """Return what a terminal with all colours prints, with its codes."""
    console = Console(
        file=io.StringIO(), width=80, record=True, force_terminal=True, color_system="truecolor"
    )
    console.print(shown)
    return console.export_text(styles=True)


def explained(**changed: Any) -> dict[str, Any]:
    return {
        "sequence_ids": [None, 0, 0, 0, 0, None],
        "offsets": [[0, 0], [0, 5], [6, 11], [13, 16], [19, 28], [0, 0]],
        "importances": [0.0, -0.4, 0.01, 0.1, 0.8, 0.0],
        "target": {"label": "POSITIVE", "score": 0.9, "index": 1},
        **changed,
    }


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"label": "POSITIVE", "score": 0.96198}, "POSITIVE 96.2%"),
        ([{"label": "a", "score": 1.0}, {"label": "b", "score": 0.25}], "a 100.0%, b 25.0%"),
        (SPAN, "Lund 92.4%"),
        ([{"generated_text": f"{TEXT} And a lake."}], "… And a lake."),
        ([{"generated_text": "And a lake."}], "And a lake."),
        ([{"score": 0.5, "token_str": "lake", "sequence": "A lake."}], "lake 50.0%"),
        ([], "nothing found"),
        ([[0.123456, 2.0]], "[0.1235, 2.0]"),
        (["a word", "a score"], '"a word", "a score"'),
        ({"sequence": TEXT, "labels": ["a", "b"], "scores": [0.75, 0.25]}, "a 75.0%, b 25.0%"),
        ([{"score": None, "label": "sky", "mask": "iVBORw0KGgo"}], "sky"),
        ({"masks": ["iVBORw0KGgo"] * 2, "scores": [0.75, 0.5]}, "mask 75.0%, mask 50.0%"),
        (
            {"audio": wav_in_base64(np.zeros(4_000, np.float32), 8_000), "sampling_rate": 8_000},
            "sound of 0.50 seconds",
        ),
        ([{"image": IMAGE, "seed": 7}], "image of 6 x 4 pixels"),
        ({"code": 503, "type": "x", "message": "no [b]worker[/b]"}, "503 no [b]worker[/b]"),
    ],
)
def test_an_answer_is_one_line(answer: Any, shown: str) -> None:
    assert plain(answer_text(answer, TEXT)) == shown


def test_an_entity_is_named_as_the_input_writes_it() -> None:
    text = "Ada Lovelace lived in London."
    assert plain(answer_text(ENTITIES, text)) == "Ada Lovelace PER, London LOC"
    assert plain(answer_text(ENTITIES, [text])) == "ada lovelace PER, london LOC"


def test_of_many_items_the_first_are_shown() -> None:
    answer = [{"label": f"l{number}", "score": 0.1} for number in range(9)]
    assert plain(answer_text(answer, TEXT)).endswith("l5 10.0%, and 3 more")


def test_a_long_text_is_cut() -> None:
    assert len(plain(answer_text({"generated_text": "word " * 500}, TEXT), width=500)) <= 105
    assert len(plain(request_text("/p", TEXT * 50), width=500)) <= len("/p\n") + 70


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        ("A film", "A film"),
        ({"question": "Who?", "context": "Ada."}, "Who? / Ada."),
        ({"image": IMAGE, "question": "Who?"}, "image of 6 x 4 pixels / Who?"),
        (wav_in_base64(np.zeros(4_000, np.float32), 8_000), "sound of 0.50 seconds"),
        ("word", "word"),  # base64 of no file
        ([{"role": "user", "content": "Hi"}], '[{"role": "user", "content": "Hi"}]'),
    ],
)
def test_a_request_is_its_path_and_its_input(inputs: Any, shown: str) -> None:
    assert plain(request_text("/predictions/m", inputs)) == f"/predictions/m\n{shown}"


def test_a_path_stays_whole_in_a_table_of_80_columns() -> None:
    table, path = exchange_table(), "/predictions/sequence_classification"
    table.add_row(request_text(path, TEXT), answer_text({"label": "POSITIVE", "score": 1}, TEXT))
    lines = plain(table).splitlines()
    assert any(path in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_without_colour_the_strongest_words_are_named() -> None:
    shown = plain(explanation_lines(explained(), TEXT))
    assert "\x1b" not in shown
    assert shown.splitlines()[0] == TEXT
    assert shown.splitlines()[-2:] == [
        "For it: wonderful +0.80, but +0.10",
        "Against it: Small -0.40",
    ]


def test_with_colour_a_word_is_green_or_red_by_its_sign_and_strength() -> None:
    first = coloured(explanation_lines(explained(), TEXT)).splitlines()[0]
    assert "\x1b[30;48;2;64;180;80mwonderful\x1b[0m" in first  # the strongest
    assert "\x1b[30;48;2;164;226;166mbut\x1b[0m" in first
    assert "\x1b[4;30;48;2;239;132;123mSmall\x1b[0m" in first  # underlined: against the target
    assert " rooms, " in first  # too weak for a colour


def test_a_pair_of_texts_has_two_lines_and_a_span_is_explained_by_its_start() -> None:
    explanation = explained(sequence_ids=[None, 0, 0, 1, 1, None])
    explanation["importances_answer_start"] = explanation.pop("importances")
    inputs = {"question": "Small rooms?", "context": TEXT}
    assert plain(explanation_lines(explanation, inputs)).splitlines()[:2] == ["Small rooms?", TEXT]


@pytest.mark.parametrize("inputs", [TEXT, {"query": "Where?", "texts": [TEXT]}])
def test_texts_that_are_not_the_input_are_shown_as_the_words_at_their_offsets(inputs: Any) -> None:
    explanation = explained(
        words=["[CLS]", "room", "##s", "lake", "view", "[SEP]"],
        offsets=[[0, 0], [0, 4], [4, 5], [0, 4], [6, 10], [0, 0]],
        sequence_ids=[None, 0, 0, 1, 1, None],
    )
    assert plain(explanation_lines(explanation, inputs)).splitlines()[:2] == ["rooms", "lake  view"]


def test_no_importance_at_all_colours_nothing() -> None:
    nothing = explanation_lines(explained(importances=[0.0] * 6), TEXT)
    assert coloured(nothing).splitlines()[0] == TEXT
    assert plain(nothing).splitlines()[-2:] == ["For it: no word", "Against it: no word"]


def test_the_target_is_its_label_or_its_text() -> None:
    assert target_of(explained()) == "POSITIVE"
    assert target_of(explained(target={"score": 0.5, "start": 4, "answer": "Lund"})) == "Lund"


def test_a_tenth_of_the_largest_importance_is_shown() -> None:
    shares = [1.0, 0.1, 0.09, -0.1]
    explanation: dict[str, Any] = {"importances": shares}
    explanation |= {"sequence_ids": [0] * 4, "offsets": [[n, n + 1] for n in (0, 2, 4, 6)]}
    lines = plain(explanation_lines(explanation, "a b c d")).splitlines()
    assert lines[-2:] == ["For it: a +1.00, b +0.10", "Against it: d -0.10"]
    patches = plain(explanation_lines({"heat_map": "", "importances": [shares]}, IMAGE))
    assert patches == " + + . -"
