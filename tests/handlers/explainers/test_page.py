"""The page of an explanation: self-contained, escaped, and sent only if it is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers.explainers.page import render, text_view
from hf_serve.handlers.explainers.targets import get

EXPLANATION: dict[str, Any] = {
    "words": ["[CLS]", "a", "love", "##ly", "<script>alert(1)</script>", "[SEP]"],
    "offsets": [[0, 0], [0, 1], [2, 6], [6, 8], [9, 34], [0, 0]],
    "importances": [0.0, -0.3, 0.9, 0.2, 0.1, 0.0],
    "prediction": {"label": "POSITIVE", "score": 0.98},
    "target": {"label": '"><img src=x onerror=alert(1)>', "score": 0.5},
    "method": "layer_integrated_gradients",
    "warning": None,
}


def test_texts_are_escaped() -> None:
    page = render([EXPLANATION]).decode()
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page


def test_the_page_loads_no_external_resource() -> None:
    page = render([EXPLANATION]).decode()
    assert "http" not in page.replace("http-equiv", "")
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_the_strongest_token_has_the_strongest_colour_and_each_its_sign() -> None:
    page = render([EXPLANATION]).decode()
    assert 'class="mark for" style="--much: 85%" title="+0.900">love<' in page
    assert 'class="mark against" style="--much: 28%" title="-0.300">a<' in page


def test_tokens_of_one_word_are_adjacent() -> None:
    assert '>love</span><span class="mark for"' in render([EXPLANATION]).decode()


def test_a_warning_is_shown() -> None:
    page = render([{**EXPLANATION, "warning": "Read with care."}]).decode()
    assert "Read with care." in page


def test_an_image_is_shown_with_its_heat_map_and_without_scripts() -> None:
    explanation = {
        **EXPLANATION,
        "importances": [[0.25, -0.5]],
        "image": "/9j/",
        "heat_map": "iVBO",
        "size": [8, 16],
        "image_size": [80, 160],
        "target": {"label": "<b>cat</b>", "score": 0.5, "box": box(40, 20, 80, 60)},
    }
    page = render([explanation], views_of("object_detection")).decode()
    for part in (
        'src="data:image/jpeg;base64,/9j/"',
        'src="data:image/png;base64,iVBO"',
        "--ratio: 16 / 8",
        '<i title="+0.250"></i><i title="-0.500"></i>',
        "left: 25.00%; top: 25.00%; width: 25.00%; height: 50.00%",
        "img-src data:",
        "&lt;b&gt;cat&lt;/b&gt; (50.0%)",
    ):
        assert part in page
    assert "<script" not in page
    assert "<b>" not in page
    assert 'class="box"' not in render([explanation], views_of("image_classification")).decode()


def views_of(mode: str) -> Any:
    target = get(mode)
    assert target
    return target.views


def box(left: int, top: int, right: int, bottom: int) -> dict[str, int]:
    return {"xmin": left, "ymin": top, "xmax": right, "ymax": bottom}


def test_errors_among_several_explanations_keep_their_place() -> None:
    error = {"code": 400, "type": "BadRequestException", "message": "inputs is empty."}
    page = render([EXPLANATION, error, EXPLANATION]).decode()
    assert page.count("<article>") == 3
    assert "inputs is empty." in page


def test_the_five_strongest_segments_are_listed() -> None:
    words = [f"word{number}" for number in range(7)]
    view = text_view(
        "",
        {"words": words, "offsets": [[5 * at, 5 * at + 4] for at in range(7)]},
        [0.1, -0.7, 0.0, 0.3, 0.6, -0.2, 0.4],
    )
    assert [mark.text for mark in view.strongest] == ["word1", "word4", "word6", "word3", "word5"]


@pytest.mark.parametrize(
    ("score", "text"),
    [(0.0, "A (0.0%)"), (1.0, "A (100.0%)"), (1.5, "A (1.5)"), (-2.25, "A (-2.25)")],
)
def test_a_score_that_is_no_probability_is_a_number(score: float, text: str) -> None:
    page = render([{**EXPLANATION, "prediction": {"label": "A", "score": score}}]).decode()
    assert text in page
