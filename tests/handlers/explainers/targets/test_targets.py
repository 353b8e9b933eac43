"""The targets of an explanation, in each mode."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving import Served, explanation_of

Load = Callable[..., Served]
QUESTION = {"question": "Who sings?", "context": "Nina Vogel sings in the old bar near the river."}
TEXT = "Ada lives in Paris and works in London."


def explain(served: Served, inputs: Any, **parameters: Any) -> tuple[int, Any]:
    body = {"inputs": inputs, "parameters": parameters}
    ((status, response),) = served.post(explanation_of(body))
    return status, response


@pytest.mark.parametrize("target", [2, "POSITIVE"])
def test_a_target_class_is_an_index_or_a_label(served: Load, target: Any) -> None:
    status, response = explain(served("sequence_classification"), "A fine film.", target=target)
    assert status == 200
    assert response["target"]["label"] == "POSITIVE"
    assert response["target"]["index"] == 2
    assert 0 < response["target"]["score"] < 1


@pytest.mark.parametrize("key", ["inputs", "text"])
def test_of_two_targets_none_is_ignored(served: Load, key: str) -> None:
    """The first key is of Hugging Face's bodies, and the other one of TorchServe's example."""
    model, body = served("sequence_classification"), {key: "A fine film."}
    two = {**body, "target": "POSITIVE", "parameters": {"target": "NEGATIVE"}}
    ((status, response),) = model.post(explanation_of(two))
    assert status == 400
    assert "target" in response["message"]
    for target in ("NEGATIVE", None):
        ((status, response),) = model.post(explanation_of({**two, "target": target}))
        assert status == 200
        assert response["target"]["label"] == "NEGATIVE"


def test_without_a_target_the_prediction_is_explained(served: Load) -> None:
    _, response = explain(served("sequence_classification"), "A fine film.")
    assert response["target"]["label"] == response["prediction"]["label"]


@pytest.mark.parametrize("target", [9, -1, "HAPPY", True, 1.5, [1, 2]])
def test_an_unknown_class_is_a_bad_request(served: Load, target: Any) -> None:
    status, response = explain(served("sequence_classification"), "A fine film.", target=target)
    assert status == 400
    assert "NEGATIVE, NEUTRAL, POSITIVE" in response["message"]


def test_a_token_and_its_class_are_a_target_in_json(served: Load) -> None:
    status, response = explain(served("token_classification"), TEXT, target=[1, "B-PER"])
    assert status == 200
    assert response["target"]["tokens"] == [1]
    assert response["target"]["label"] == "B-PER"


def test_a_token_and_its_class_are_a_target_in_the_old_example(served: Load) -> None:
    http_request = explanation_of(b"{'text': 'Ada lives in Paris.', 'target': (1, 2)}")
    ((status, response),) = served("token_classification").post(http_request)
    assert status == 200
    assert response["target"]["label"] == "I-PER"


def test_a_span_of_a_text_is_a_target(served: Load) -> None:
    start = TEXT.index("Paris")
    target = {"start": start, "end": start + 5, "label": "B-LOC"}
    status, response = explain(served("token_classification"), TEXT, target=target)
    assert status == 200
    assert TEXT[response["target"]["start"] : response["target"]["end"]] == "Paris"
    assert response["target"]["label"] == "B-LOC"


@pytest.mark.parametrize(
    "target", [[99, 0], [0], "B-PER", {"start": 3}, {"start": 0, "end": 999}, {"token": "x"}]
)
def test_an_unknown_token_is_a_bad_request(served: Load, target: Any) -> None:
    status, response = explain(served("token_classification"), TEXT, target=target)
    assert status == 400
    assert "target" in response["message"]


def test_an_answer_is_explained_at_both_ends(served: Load) -> None:
    status, response = explain(served("question_answering"), QUESTION)
    assert status == 200
    assert len(response["importances_answer_start"]) == len(response["words"])
    assert len(response["importances_answer_end"]) == len(response["words"])
    assert isinstance(response["delta_start"], float)
    assert isinstance(response["delta_end"], float)
    assert response["target"]["label"] == response["prediction"]["answer"]


def test_the_window_that_holds_the_characters_is_explained(served: Load) -> None:
    text = f"{TEXT[:-1]} and " * 40
    start = text.rindex("London")
    status, response = explain(
        served("token_classification"),
        text,
        target={"start": start, "end": start + len("London")},
        method="feature_ablation",
        aggregation_strategy="first",
        stride=8,
    )
    assert status == 200, response
    places = [response["offsets"][token] for token in response["target"]["tokens"]]
    assert "".join(text[slice(*each)] for each in places) == "London"
    assert response["offsets"][1][0] > len(TEXT)


@pytest.mark.parametrize("context", ["The bar\n\nwas  fine\t.  ", "a   b   c   \n\n\n d"])
def test_an_answer_with_spaces_around_it_is_explained(served: Load, context: str) -> None:
    model = served("question_answering", family="Roberta")
    asked = {"question": "Who 😀?", "context": context}
    status, response = explain(model, asked)
    assert status == 200, response
    assert response["prediction"] == model.ask(asked)


def test_a_span_of_the_context_is_a_target(served: Load) -> None:
    target = {"start": 0, "end": 10}
    _, response = explain(served("question_answering"), QUESTION, target=target)
    assert response["target"]["label"] == "Nina Vogel"


def test_the_window_that_holds_the_span_is_explained(served: Load) -> None:
    context = "Ada lives in Paris. " * 30 + "Nina sings."
    target = {"start": len(context) - 11, "end": len(context) - 7}
    question = {"question": "Who sings?", "context": context}
    status, response = explain(
        served("question_answering"), question, target=target, max_seq_len=48, doc_stride=8
    )
    assert status == 200
    assert response["target"]["label"] == "Nina"
    assert len(response["words"]) <= 48


def test_each_produced_token_is_explained(served: Load) -> None:
    _, response = explain(served("text_generation"), "Once upon a time", max_new_tokens=3)
    assert len(response["tokens"]) == 3
    for token in response["tokens"]:
        assert len(token["importances"]) == len(response["words"])
    produced = "".join(token["token"] for token in response["tokens"])
    assert response["prediction"]["generated_text"] == "Once upon a time" + produced


@pytest.mark.parametrize("mode", ["sequence_classification", "text_generation"])
def test_kernel_shap_explains_a_single_token(served: Load, mode: str) -> None:
    options = {"max_new_tokens": 2} if mode == "text_generation" else {}
    status, response = explain(served(mode), "a", method="kernel_shap", **options)
    assert status == 200, response
    difference = response["output"] - response["baseline_output"]
    assert difference and sum(response["attributions"]) == pytest.approx(difference)


def test_another_text_is_a_target(served: Load) -> None:
    _, response = explain(served("text_generation"), "Once upon", target=" a time")
    assert response["target"]["label"] == " a time"
    assert response["target"]["score"] < 1


def test_tokens_that_are_part_of_a_character_are_explained(served: Load) -> None:
    """Bytes that are no text alone are explained like any other token."""
    for size in (1, 2, 3, 5):
        status, response = explain(served("text_generation"), "Once upon", max_new_tokens=size)
        assert status == 200, response
        assert len(response["tokens"]) == size


def test_words_are_explained_instead_of_tokens(served: Load) -> None:
    text = "Unbelievable singers were singing."
    _, tokens = explain(served("sequence_classification"), text, method="input_x_gradient")
    _, words = explain(
        served("sequence_classification"), text, method="input_x_gradient", granularity="word"
    )
    assert words["words"] == ["[CLS]", "Unbelievable", "singers", "were", "singing", ".", "[SEP]"]
    assert len(tokens["words"]) > len(words["words"])
    assert sum(words["attributions"]) == pytest.approx(sum(tokens["attributions"]), rel=1e-4)
    for (start, end), word in zip(words["offsets"], words["words"], strict=True):
        assert text[start:end] == word or word.startswith("[")


def test_the_error_for_a_timeout_names_the_parameter_to_lower(served: Load) -> None:
    limited = served("sequence_classification", explain_timeout=0.001)
    status, response = explain(limited, "A fine film.", n_steps=1000)
    assert status == 422
    assert "lower n_steps" in response["message"]
    assert limited.ask("A fine film.")


def test_explanations_are_refused_if_the_yaml_disables_them(served: Load) -> None:
    status, response = explain(
        served("sequence_classification", captum_explanation=False), "A fine film."
    )
    assert status == 422
    assert "captum_explanation" in response["message"]


def cosine(served: Served, first: str, second: str, **parameters: Any) -> float:
    pair = [np.array(served.ask(text, normalize=True, **parameters)) for text in (first, second)]
    return float(pair[0] @ pair[1])


@pytest.mark.parametrize("mode", ["text_generation", "text2text_generation"])
@pytest.mark.parametrize("method", ["feature_ablation", "shapley_value_sampling", "kernel_shap"])
def test_a_word_of_a_prompt_is_replaced_as_a_whole(served: Load, mode: str, method: str) -> None:
    word = {"method": method, "granularity": "word", "max_new_tokens": 2}
    status, response = explain(served(mode), "unverwechselbar", **word)
    assert status == 200
    assert len([each for each in response["attributions"] if each]) == 1
    difference = response["output"] - response["baseline_output"]
    assert sum(response["attributions"]) == pytest.approx(difference, abs=1e-3)
    _, tokens = explain(served(mode), "unverwechselbar", **word | {"granularity": "token"})
    assert len(tokens["attributions"]) > len(response["attributions"])


@pytest.mark.parametrize("parameters", [{}, {"dimensions": 8}])
def test_the_similarity_to_another_text_is_explained(served: Load, parameters: Any) -> None:
    model, other = served("sentence_embedding"), "Nina sings in the bar."
    status, response = explain(model, TEXT, target=other, granularity="word", **parameters)
    assert status == 200
    score = cosine(model, TEXT, other, **parameters)
    assert response["output"] == pytest.approx(score, abs=1e-5)
    assert response["target"] == {"label": other, "score": pytest.approx(score, abs=1e-5)}
    assert response["converged"]


@pytest.mark.parametrize("method", ["feature_ablation", "input_x_gradient"])
def test_without_a_target_the_length_of_a_vector_is_explained(served: Load, method: str) -> None:
    model = served("sentence_embedding")
    _, response = explain(model, TEXT, method=method)
    length = np.linalg.norm(model.ask(TEXT, normalize=False))
    assert response["output"] == pytest.approx(length, rel=1e-4)
    assert max(map(abs, response["attributions"])) > 1e-3


@pytest.mark.parametrize("target", [5, "", ["a"]])
def test_a_target_that_is_no_text_is_a_bad_request(served: Load, target: Any) -> None:
    status, response = explain(served("sentence_embedding"), TEXT, target=target)
    assert status == 400
    assert response["message"].startswith("target")


def test_similarities_to_different_texts_are_explained_in_one_batch(served: Load) -> None:
    model = served("sentence_embedding")
    bodies = [
        {"inputs": TEXT, "parameters": {"target": target, "method": "input_x_gradient"}}
        for target in ("Paris", "London is old", TEXT)
    ]
    check_that_company_changes_nothing(model, bodies)


def check_that_company_changes_nothing(model: Served, bodies: list[Any]) -> None:
    """Check that each explanation in a batch is that of the request alone."""
    together = model.post(*map(explanation_of, bodies))
    for body, (status, response) in zip(bodies, together, strict=True):
        ((_, alone),) = model.post(explanation_of(body))
        assert status == 200
        assert response["output"] == pytest.approx(alone["output"], abs=1e-4)
        assert response["attributions"] == pytest.approx(alone["attributions"], abs=1e-4)
        assert any(response["attributions"])


def hidden_states(served: Served, text: str) -> Any:
    return np.array(served.ask(text)[0])


def test_without_a_target_the_mean_of_all_tokens_is_explained(served: Load) -> None:
    model = served("feature_extraction")
    status, response = explain(model, TEXT)
    assert status == 200
    vectors = hidden_states(model, TEXT)
    length = pytest.approx(np.linalg.norm(vectors.mean(axis=0)), rel=1e-4)
    assert response["output"] == length
    assert response["prediction"] == {"label": "length", "score": length}
    assert response["target"] == {
        "label": "length",
        "score": length,
        "index": None,
        "tokens": list(range(len(vectors))),
        "start": 0,
        "end": len(TEXT),
    }
    assert response["converged"]
    assert max(map(abs, response["attributions"])) > 1e-3


@pytest.mark.parametrize(
    ("target", "tokens", "dimension"),
    [
        (5, slice(None), 5),
        ([1, 5], slice(1, 2), 5),
        ({"token": 1, "dimension": 0}, slice(1, 2), 0),
        ({"dimension": 5}, slice(None), 5),
    ],
)
def test_a_dimension_of_tokens_is_a_target(
    served: Load, target: Any, tokens: slice, dimension: int
) -> None:
    model = served("feature_extraction")
    status, response = explain(model, TEXT, target=target)
    assert status == 200
    expected = hidden_states(model, TEXT)[tokens, dimension].mean()
    assert response["output"] == pytest.approx(expected, abs=1e-4)
    assert response["target"]["label"] == f"dimension {dimension}"
    assert response["converged"]


@pytest.mark.parametrize("dimension", [None, 3])
def test_characters_are_a_target_of_their_vectors(served: Load, dimension: int | None) -> None:
    model, start = served("feature_extraction"), TEXT.index("Paris")
    target = {"start": start, "end": start + 5}
    if dimension is not None:
        target["dimension"] = dimension
    status, response = explain(model, TEXT, target=target)
    assert status == 200
    found = response["target"]
    assert TEXT[found["start"] : found["end"]] == "Paris"
    mean = hidden_states(model, TEXT)[found["tokens"]].mean(axis=0)
    expected = np.linalg.norm(mean) if dimension is None else mean[dimension]
    assert response["output"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "target",
    [
        99_999,
        -1,
        True,
        1.5,
        "Ada",
        [1],
        [999, 0],
        [0, 99_999],
        {},
        {"token": "x"},
        {"start": 3},
        {"start": 0, "end": 999},
        {"label": "B-PER"},
        {"token": 1, "dimension": None},
        {"token": 1, "start": 0, "end": 3},
        {"start": 3, "end": 3},
        {"start": 4, "end": 2},
    ],
)
def test_an_unknown_vector_is_a_bad_request(served: Load, target: Any) -> None:
    status, response = explain(served("feature_extraction"), TEXT, target=target)
    assert status == 400
    assert "target" in response["message"]


@pytest.mark.parametrize("mode", ["feature_extraction", "token_classification"])
def test_a_token_keeps_its_explanation_beside_longer_texts_of_a_tokenizer_that_pads_at_the_left(
    checkpoint: Callable[..., Path], tmp_path: Path, mode: str
) -> None:
    folder = shutil.copytree(checkpoint(mode, family="Llama"), tmp_path / "model")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "padding_side": "left"}), encoding="utf-8")
    model = Served(folder, mode)
    parameters = {"target": [1, 2], "method": "input_x_gradient"}
    bodies = [{"inputs": text, "parameters": parameters} for text in (TEXT[:-3], TEXT + " Nina.")]
    check_that_company_changes_nothing(model, bodies)


def test_vectors_of_different_tokens_are_explained_in_one_batch(served: Load) -> None:
    model = served("feature_extraction")
    targets: list[Any] = [None, 3, {"token": 2}, [0, 1], {"start": 0, "end": 12, "dimension": 2}]
    bodies = [
        {"inputs": text, "parameters": {"target": target, "method": "input_x_gradient"}}
        for target, text in zip(targets, (TEXT, TEXT[:20], TEXT, TEXT[:12], TEXT), strict=True)
    ]
    check_that_company_changes_nothing(model, bodies)


def test_the_characters_of_a_cut_text_are_those_that_are_read(served: Load) -> None:
    cut = {"truncate": True, "truncation_direction": "left"}
    model = served("feature_extraction", max_length=8)
    status, response = explain(model, TEXT, **cut)
    assert status == 200
    assert response["target"]["tokens"] == list(range(8))
    assert 0 < response["target"]["start"] < response["target"]["end"] == len(TEXT)
    status, response = explain(model, TEXT, target=[0, 1], **cut)
    assert status == 200
    assert (response["target"]["start"], response["target"]["end"]) == (0, 0)
