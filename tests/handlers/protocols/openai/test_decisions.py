"""OpenAI's `decisions` and TypeSafe's `systemone`, below `/predictions` and `/explanations`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served, differences

Load = Callable[..., Served]
CLASSIFICATION, ZERO_SHOT = "sequence_classification", "zero_shot_classification"
LABELS = ("NEGATIVE", "NEUTRAL", "POSITIVE")
PREDICATE = {"type": "predicate", "instructions": "positive", "name": "praise"}
CHOICE = {
    "type": "choice",
    "instructions": "Which one?",
    "choices": [{"value": "POSITIVE", "description": "praise"}, {"value": "negative"}],
}
LEVELS = {
    "type": "score",
    "instructions": "How good is it?",
    "levels": [{"label": label} for label in LABELS],
}
NOUL = {"type": "noul", "instructions": "positive"}
CRITERIA = {"type": "choice", "instructions": "Which one?", "criteria": {"POSITIVE": "praise"}}


def send(model: Served, path: str, body: Any, *, explains: bool = False) -> tuple[int, Any]:
    headers = {"url_path": path, "Content-Type": "application/json", "explain": str(explains)}
    ((status, answer),) = model.post(HttpRequest({"body": body}, headers))
    return status, answer


def decide(model: Served, *questions: Any, text: Any = FINE) -> Any:
    body = {"input": text, "questions": list(questions), "model": "any"}
    status, answer = send(model, "v1/decisions", body)
    assert status == 200, answer
    return answer


def evaluate(model: Served, questions: Any, state: Any = FINE) -> Any:
    status, answer = send(model, "v1/systemone", {"state": state, "questions": questions})
    assert status == 200, answer
    return answer


def refuse(model: Served, path: str, body: Any) -> tuple[int, str]:
    status, answer = send(model, path, body)
    assert answer["error"].keys() == {"message", "type", "param", "code"}
    return status, answer["error"]["message"]


def test_a_classifier_answers_with_the_probabilities_of_its_labels(served: Load) -> None:
    model = served(CLASSIFICATION)
    answer = decide(model, PREDICATE, CHOICE, LEVELS)
    predicate, choice, score = answer["answers"]
    own = {each["label"]: each["score"] for each in model.ask(FINE, top_k=None)}
    assert predicate["type"] == "predicate" and predicate["name"] == "praise"
    assert predicate["probability"] == pytest.approx(own["POSITIVE"], abs=1e-5)
    # NEUTRAL is no option, so that its probability is not counted.
    both = own["POSITIVE"] + own["NEGATIVE"]
    expected = [own["POSITIVE"] / both, own["NEGATIVE"] / both]
    assert choice["name"] is None
    assert [each["value"] for each in choice["probabilities"]] == ["POSITIVE", "negative"]
    found = [each["probability"] for each in choice["probabilities"]]
    assert found == pytest.approx(expected, abs=1e-5)
    assert choice["choice"] == ("POSITIVE" if expected[0] > 0.5 else "negative")
    assert choice["confidence"] == pytest.approx(2 * max(expected) - 1, abs=1e-5)
    levels = [own[label] for label in LABELS]
    assert score["score"] == pytest.approx(levels[1] + 2 * levels[2], abs=1e-5)
    assert [(each["value"], each["label"]) for each in score["probabilities"]] == list(
        enumerate(LABELS)
    )
    assert score["confidence"] == pytest.approx(max(0, (max(levels) - 1 / 3) * 1.5), abs=1e-5)


def test_usage_counts_the_tokens_of_each_question(served: Load) -> None:
    model = served(CLASSIFICATION)
    answer = decide(model, PREDICATE, CHOICE, LEVELS)
    task: Any = model.engine.task
    tokens = 3 * len(task.tokenizer(FINE)["input_ids"])
    assert answer["model"] == model.engine.describe().name
    assert answer["usage"] == {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }
    usage = evaluate(model, {"a": NOUL})["usage"]
    assert usage == {"input_tokens": tokens // 3, "output_tokens": 0}


def test_nli_answers_with_hypotheses_of_the_options(served: Load) -> None:
    model = served(ZERO_SHOT)
    predicate, choice, score = decide(model, PREDICATE, CHOICE, LEVELS)["answers"]
    own = model.ask(
        {"text": FINE, "candidate_labels": ["positive"]}, hypothesis_template="{}", multi_label=True
    )
    assert predicate["probability"] == pytest.approx(own["scores"][0], abs=1e-5)
    options = ["Which one? POSITIVE: praise", "Which one? negative"]
    expected = scores_of(model, options)
    found = [each["probability"] for each in choice["probabilities"]]
    assert found == pytest.approx([expected[option] for option in options], abs=1e-5)
    levels = [f"How good is it? {label}" for label in LABELS]
    expected = scores_of(model, levels)
    found = [each["probability"] for each in score["probabilities"]]
    assert found == pytest.approx([expected[level] for level in levels], abs=1e-5)


def scores_of(model: Served, hypotheses: list[str]) -> dict[str, float]:
    inputs = {"text": FINE, "candidate_labels": hypotheses}
    found = model.ask(inputs, hypothesis_template="{}")
    return dict(zip(found["labels"], found["scores"], strict=True))


def test_both_outcomes_of_a_noul_are_hypotheses_where_both_are_described(served: Load) -> None:
    model = served(ZERO_SHOT)
    criteria = {"true": "It is praise.", "false": "It is blame."}
    noul = {"type": "noul", "instructions": "Praise?", "criteria": criteria}
    described = {"type": "noul", "criteria": {"true": "It is praise."}}
    answers = evaluate(model, {"both": noul, "one": described})["answers"]
    expected = scores_of(model, ["Praise? It is praise.", "Praise? It is blame."])
    assert answers["both"] == {
        "type": "noul",
        "noul": pytest.approx(expected["Praise? It is praise."], abs=1e-5),
    }
    own = model.ask(
        {"text": FINE, "candidate_labels": ["It is praise. It is praise."]},
        hypothesis_template="{}",
        multi_label=True,
    )
    assert answers["one"]["noul"] == pytest.approx(own["scores"][0], abs=1e-5)


def test_systemone_names_its_answers(served: Load) -> None:
    model = served(CLASSIFICATION)
    questions = {
        "is praise": NOUL,
        "which": {"type": "choice", "criteria": {"POSITIVE": None, "negative": {"a": 1}}},
        "how": {"type": "score", "instructions": ["x"], "criteria": ["NEGATIVE", "POSITIVE"]},
    }
    found = evaluate(model, questions)["answers"]
    predicate, choice = decide(model, PREDICATE, CHOICE)["answers"]
    probabilities = [each["probability"] for each in choice["probabilities"]]
    assert list(found) == list(questions)
    noul = {"type": "noul", "noul": predicate["probability"]}
    assert not differences(found["is praise"], noul, 1e-5)
    expected = {
        "type": "choice",
        "choice": choice["choice"],
        "probabilities": dict(zip(("POSITIVE", "negative"), probabilities, strict=True)),
        "confidence": choice["confidence"],
    }
    assert not differences(found["which"], expected, 1e-5)
    expected = {
        "type": "score",
        "score": probabilities[0],
        "legend": {"0": "NEGATIVE", "1": "POSITIVE"},
        "probabilities": {"0": probabilities[1], "1": probabilities[0]},
        "confidence": choice["confidence"],
    }
    assert not differences(found["how"], expected, 1e-5)


CONVERSATION = [
    {"role": "system", "content": "Be kind."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": FINE}]},
    {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "1"},
    {"type": "function_call_output", "call_id": "1", "output": "dull"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]},
]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([{"role": "user", "content": FINE}], FINE),
        (
            [{"role": "user", "content": [{"type": "input_json", "data": {"à": [1]}}]}],
            '{"à": [1]}',
        ),
        (
            CONVERSATION,
            f"system: Be kind.\n\nuser: {FINE}\n\ncall: look {{}}\n\nresult: dull\n\n"
            "assistant: Yes",
        ),
    ],
)
def test_an_input_is_read_as_one_text(served: Load, given: Any, text: str) -> None:
    model = served(CLASSIFICATION)
    found = decide(model, LEVELS, text=given)
    assert not differences(found, decide(model, LEVELS, text=text), 1e-5)


def test_a_state_of_json_is_read_as_its_text(served: Load) -> None:
    model = served(CLASSIFICATION)
    found = evaluate(model, {"a": NOUL}, state={"film": FINE, "price": 2.0})
    expected = evaluate(model, {"a": NOUL}, state=f'{{"film": "{FINE}", "price": 2.0}}')
    assert not differences(found, expected, 1e-5)


def test_a_question_that_the_model_cannot_answer_is_refused_alone(served: Load) -> None:
    model = served(CLASSIFICATION)
    unknown = {"type": "predicate", "instructions": "It rains.", "name": "rain"}
    known, refused = decide(model, PREDICATE, unknown)["answers"]
    (expected,) = decide(model, PREDICATE)["answers"]
    assert not differences(known, expected, 1e-5)
    assert refused == {
        "type": "refusal",
        "name": "rain",
        "message": Sentence("It rains.", "NEGATIVE"),
    }
    status, message = refuse(model, "v1/decisions", {"input": FINE, "questions": [unknown]})
    assert (status, message) == (422, Sentence("It rains."))
    questions = {"praise": NOUL, "rain": {"type": "noul", "instructions": "It rains."}}
    status, message = refuse(model, "v1/systemone", {"state": FINE, "questions": questions})
    assert (status, message) == (422, Sentence("questions.rain"))


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({"input": FINE}, 400, ["questions"]),
        ({"input": FINE, "questions": []}, 400, ["questions"]),
        ({"input": FINE, "questions": [PREDICATE] * 129}, 413, ["questions", 129]),
        ({"input": "", "questions": [PREDICATE]}, 400, ["input"]),
        ({"input": [], "questions": [PREDICATE]}, 400, ["input"]),
        ({"input": [5], "questions": [PREDICATE]}, 400, ["input[0]"]),
        ({"input": [{"content": "a"}], "questions": [PREDICATE]}, 400, ["input[0].role"]),
        ({"input": [{"type": "item_reference"}], "questions": [PREDICATE]}, 422, ["input[0]"]),
        (
            {
                "input": [{"role": "user", "content": [{"type": "input_image"}]}],
                "questions": [PREDICATE],
            },
            422,
            ["input[0].content[0]", "input_image"],
        ),
        ({"input": FINE, "questions": [{"type": "other"}]}, 400, ["questions.0.type"]),
        ({"input": FINE, "questions": [{"type": "predicate"}]}, 400, ["questions.0.instructions"]),
        (
            {"input": FINE, "questions": [PREDICATE, {**PREDICATE, "instructions": " "}]},
            400,
            ["questions[1].instructions"],
        ),
        (
            {"input": FINE, "questions": [{**CHOICE, "choices": None}]},
            400,
            ["questions[0].choices"],
        ),
        (
            {"input": FINE, "questions": [{**CHOICE, "choices": [{"value": "a"}]}]},
            400,
            ["questions[0]", 1, 255],
        ),
        (
            {"input": FINE, "questions": [{**CHOICE, "choices": [{"value": "a"}] * 2}]},
            400,
            ["questions[0]", "a"],
        ),
        (
            {"input": FINE, "questions": [{**LEVELS, "levels": [{"label": "a"}] * 11}]},
            400,
            ["questions[0]", 11, 10],
        ),
        ({"input": FINE, "questions": [PREDICATE], "parameters": {"a": 1}}, 400, ["parameters"]),
    ],
)
def test_a_body_of_decisions_that_cannot_be_answered_is_refused(
    served: Load, body: Any, status: int, facts: list[Any]
) -> None:
    assert refuse(served(CLASSIFICATION), "v1/decisions", body) == (status, Sentence(*facts))


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({"questions": {"a": NOUL}}, 400, ["state"]),
        ({"state": FINE, "questions": [NOUL]}, 400, ["questions"]),
        ({"state": FINE, "questions": {"a": {"type": "box"}}}, 400, ["questions.a.type"]),
        (
            {"state": FINE, "questions": {"a": {**NOUL, "criteria": {"maybe": None}}}},
            400,
            ["questions.a.criteria", "maybe"],
        ),
        (
            {"state": FINE, "questions": {"a": {**NOUL, "type": "choice"}}},
            400,
            ["questions.a.criteria", "null"],
        ),
        (
            {"state": FINE, "questions": {"a": {**CRITERIA, "type": "score"}}},
            400,
            ["questions.a.criteria", "list"],
        ),
        ({"state": FINE, "questions": {"a": CRITERIA}}, 400, ["questions.a", 1, 255]),
        ({"state": FINE, "questions": {"a": {"type": "noul"}}}, 400, ["questions.a.instructions"]),
        ({"state": FINE, "questions": {"a": NOUL}, "images": ["a"]}, 422, ["images"]),
    ],
)
def test_a_body_of_systemone_that_cannot_be_answered_is_refused(
    served: Load, body: Any, status: int, facts: list[Any]
) -> None:
    assert refuse(served(CLASSIFICATION), "v1/systemone", body) == (status, Sentence(*facts))


def test_a_model_of_another_mode_refuses(served: Load) -> None:
    body = {"input": FINE, "questions": [PREDICATE]}
    assert refuse(served("sentence_embedding"), "decisions", body) == (
        422,
        Sentence("sentence_embedding"),
    )


def explain(model: Served, path: str, body: Any) -> Any:
    status, answer = send(model, path, body, explains=True)
    assert status == 200, answer
    return answer


SETTINGS = {"method": "feature_ablation", "granularity": "word"}


def explanation_of(model: Served, inputs: Any, **parameters: Any) -> Any:
    body = {"inputs": inputs, "parameters": {**SETTINGS, **parameters}}
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"explain": "True"}))
    assert status == 200, answer
    return answer


def test_the_words_of_a_decision_are_those_of_its_label(served: Load) -> None:
    model = served(CLASSIFICATION)
    body = {"input": FINE, "questions": [CHOICE, PREDICATE], "parameters": SETTINGS}
    answer = explain(model, "v1/decisions", body)
    choice, predicate = answer["answers"]
    (decided,) = decide(model, CHOICE)["answers"]
    found, expected = (
        choice["explanation"],
        explanation_of(model, FINE, target=decided["choice"].upper()),
    )
    assert choice["type"] == "choice" and "usage" not in answer
    assert not differences(found["attributions"], expected["attributions"], 1e-5)
    best = max(each["probability"] for each in decided["probabilities"])
    assert found["target"]["score"] == pytest.approx(best, abs=1e-5)
    assert found["prediction"]["label"] == decided["choice"].upper()
    assert predicate["name"] == "praise"
    assert predicate["explanation"]["target"]["label"] == "POSITIVE"


def test_the_words_of_a_decision_by_nli_are_those_of_its_hypothesis(served: Load) -> None:
    model = served(ZERO_SHOT)
    questions = {"which": {"type": "choice", "criteria": {"music": None, "weather": None}}}
    body = {"state": FINE, "questions": questions, "parameters": SETTINGS}
    found = explain(model, "v1/systemone", body)["answers"]["which"]["explanation"]
    expected = explanation_of(
        model,
        {"text": FINE, "candidate_labels": ["music", "weather"]},
        hypothesis_template="{}",
    )
    assert not differences(found["attributions"], expected["attributions"], 1e-5)
    assert found["prediction"] == expected["prediction"]


def test_an_option_may_be_the_target(served: Load) -> None:
    model = served(CLASSIFICATION)
    settings = {**SETTINGS, "target": "NEGATIVE"}
    body: dict[str, Any] = {"input": FINE, "questions": [CHOICE], "parameters": settings}
    (answer,) = explain(model, "v1/decisions", body)["answers"]
    assert answer["explanation"]["target"]["label"] == "NEGATIVE"
    body["parameters"] = {**SETTINGS, "target": "NEUTRAL"}
    status, answer = send(model, "v1/decisions", body, explains=True)
    assert (status, answer["error"]["message"]) == (400, Sentence("NEUTRAL"))


def test_questions_of_several_requests_are_isolated(served: Load) -> None:
    model, headers = served(CLASSIFICATION), {"url_path": "decisions", "explain": "False"}
    bodies = [
        {"input": FINE, "questions": [PREDICATE, LEVELS]},
        {"input": ODD, "questions": [{"type": "predicate", "instructions": "It rains."}]},
        {"input": ODD, "questions": [LEVELS]},
        {"input": ODD, "questions": 5},
    ]
    replies = model.post(*(HttpRequest({"body": body}, headers) for body in bodies))
    assert [status for status, _ in replies] == [200, 422, 200, 400]
    expected = decide(model, LEVELS, text=ODD)["answers"]
    assert not differences(replies[2][1]["answers"], expected, 1e-5)
