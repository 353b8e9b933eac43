"""OpenAI's `moderations` by a table of labels over a classifier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import ConfigError, WrongConfig
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.protocols.base import UNKNOWN_KEYS
from hf_serve.handlers.telemetry.metrics import Meter
from tests import tiny
from tests.samples import FINE, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

MODE = "sequence_classification"
# NEUTRAL is harmless, and two labels are one category.
EXPLAINED = {"explain": "True"}
TABLE = {"NEGATIVE": "harm/verbal", "POSITIVE": "praise"}


def send(
    model: Served, body: Any, path: str = "v1/moderations", *, explains: bool = False
) -> tuple[int, Any]:
    headers = {"url_path": path, "Content-Type": "application/json", "explain": str(explains)}
    ((status, answer),) = model.post(HttpRequest({"body": body}, headers))
    return status, answer


def moderate(model: Served, given: Any) -> list[Any]:
    status, answer = send(model, {"input": given, "model": "any"})
    assert status == 200, answer
    assert answer.keys() == {"id", "model", "results"} and answer["id"].startswith("modr-")
    return list(answer["results"])


def scores_of(model: Served, text: str) -> dict[str, float]:
    return {each["label"]: each["score"] for each in model.ask(text, top_k=None)}


@pytest.fixture(scope="module")
def independent(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("independent") / "model"
    return Served(tiny.write(folder, MODE, problem_type="multi_label_classification"), MODE)


def test_each_text_has_the_scores_of_its_categories(served: Callable[..., Served]) -> None:
    model = served(MODE, moderation=TABLE)
    for text, found in zip((FINE, ODD), moderate(model, [FINE, ODD]), strict=True):
        own = scores_of(model, text)
        expected = {category: own[label] for label, category in TABLE.items()}
        assert not differences(found["category_scores"], expected, 1e-5)
        assert found["categories"] == {name: score >= 0.5 for name, score in expected.items()}
        assert found["flagged"] == any(found["categories"].values())
        assert found["category_applied_input_types"] == {name: ["text"] for name in expected}


def test_a_category_of_several_labels_has_their_highest_score(
    served: Callable[..., Served],
) -> None:
    model = served(MODE, moderation=dict.fromkeys(TABLE, "harm"))
    (found,) = moderate(model, FINE)
    own = scores_of(model, FINE)
    expected = {"harm": max(own["NEGATIVE"], own["POSITIVE"])}
    assert not differences(found["category_scores"], expected, 1e-5)


def test_labels_of_a_multi_label_model_are_categories(independent: Served) -> None:
    (found,) = moderate(independent, FINE)
    own = scores_of(independent, FINE)
    assert not differences(found["category_scores"], own, 1e-5)
    # Each has a probability of its own.
    assert sum(own.values()) != pytest.approx(1, abs=1e-3)


def test_a_threshold_decides_what_is_flagged(served: Callable[..., Served]) -> None:
    thresholds = {"praise": 0.0, "harm/verbal": 1.0}
    model = served(MODE, moderation=TABLE, moderation_thresholds=thresholds)
    (found,) = moderate(model, FINE)
    assert found["categories"] == {"praise": True, "harm/verbal": False} and found["flagged"]


def test_scores_are_probabilities_whatever_the_yaml_sets(served: Callable[..., Served]) -> None:
    (expected,) = moderate(served(MODE, moderation=TABLE), FINE)
    parameters = {"function_to_apply": "none", "top_k": 1}
    (found,) = moderate(served(MODE, moderation=TABLE, parameters=parameters), FINE)
    assert not differences(found, expected, 1e-5)


def test_the_parts_of_one_input_are_one_text(independent: Served) -> None:
    parts = [{"type": "text", "text": text} for text in (FINE, ODD)]
    (found,) = moderate(independent, parts)
    (expected,) = moderate(independent, f"{FINE}\n{ODD}")
    assert not differences(found, expected, 1e-5)


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({}, 400, ["input"]),
        ({"input": []}, 400, ["input"]),
        ({"input": ""}, 400, ["input"]),
        ({"input": 5}, 400, ["input"]),
        ({"input": ["a", ""]}, 400, ["input[1]"]),
        ({"input": ["a", IMAGE]}, 400, ["input[1]"]),
        ({"input": ["a"] * 200}, 413, ["input", 200]),
        ({"input": [{"type": "text", "text": "a"}, IMAGE]}, 422, ["input[1]"]),
        ({"input": [{"type": "text", "text": None}]}, 422, ["input[0]"]),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    independent: Served, body: Any, status: int, facts: list[Any]
) -> None:
    found, answer = send(independent, body)
    assert (found, answer["error"]["message"]) == (status, Sentence(*facts))


def test_labels_that_exclude_one_another_need_a_table(served: Callable[..., Served]) -> None:
    status, answer = send(served(MODE), {"input": FINE})
    assert (status, answer["error"]["message"]) == (422, Sentence("handler.moderation"))


def test_a_key_that_nobody_defines_is_listed(independent: Served) -> None:
    headers = {"url_path": "moderations", "Content-Type": "application/json"}
    request = HttpRequest({"body": {"input": FINE, "inputs": 1}}, headers)
    (answer,) = independent.dispatcher.dispatch([request], Meter())
    assert (answer.status, answer.headers[UNKNOWN_KEYS]) == (200, "inputs")


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"moderation": {"NEGATIV": "harm"}}, ["handler.moderation", "NEGATIV", "NEGATIVE"]),
        (
            {"moderation": TABLE, "moderation_thresholds": {"NEGATIVE": 0.1}},
            ["handler.moderation_thresholds", "NEGATIVE", "praise"],
        ),
        ({"moderation_thresholds": {"harm": 0.1}}, ["handler.moderation_thresholds", "harm"]),
    ],
)
def test_a_table_names_what_the_model_has(
    tmp_path: Path, settings: dict[str, Any], facts: list[str]
) -> None:
    with refused(WrongConfig, *facts):
        Served(tiny.write(tmp_path / "model", MODE), MODE, **settings)


def test_a_table_is_for_labels_of_texts() -> None:
    with refused(ConfigError, "moderation", "token_classification", MODE):
        ModelConfig.parse({"handler": {"mode": "token_classification", "moderation": TABLE}})


def test_the_words_of_a_moderation_are_those_of_its_label(served: Callable[..., Served]) -> None:
    model = served(MODE, moderation=TABLE)
    settings = {"method": "feature_ablation", "target": "NEGATIVE"}
    body = {"input": [FINE, ODD], "parameters": settings}
    status, answer = send(model, body, explains=True)
    assert status == 200, answer
    for text, found in zip((FINE, ODD), answer["results"], strict=True):
        request = HttpRequest({"body": {"inputs": text, "parameters": settings}}, EXPLAINED)
        ((_, expected),) = model.post(request)
        assert not differences(found["explanation"], expected, 1e-5)
    status, answer = send(model, body)
    assert (status, answer["error"]["message"]) == (400, Sentence("parameters"))
