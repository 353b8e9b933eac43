"""KServe's V1 on TorchServe's own routes for it, with KServe's client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hf_serve.scripts.paths import ARTIFACTS
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import Question, ask_at_once, ask_json
from tests.e2e.clients import run_client
from tests.e2e.served import explained_modes, served_modes
from tests.modes import cases
from tests.serving import differences

FILM, MODE = "What a lovely, warm film.", "sequence_classification"
EXPLAINED = {"method": "feature_ablation", "granularity": "word"}
WRONG = {"instances": [""], "parameters": {}}


def instances_of(mode: str) -> list[Any]:
    sample = json.loads((ARTIFACTS / mode / "sample.json").read_text("utf-8"))
    return [sample["inputs"], *cases(mode).table[:2]]


def bodies_of(mode: str) -> list[dict[str, Any]]:
    """Return a body with one instance, and one with several."""
    instances, parameters = instances_of(mode), dict(cases(mode).brief)
    return [{"instances": given, "parameters": parameters} for given in (instances[:1], instances)]


def expected(server: Server, route: str, mode: str, instances: Any, parameters: Any = None) -> Any:
    """Return the answer of the Hugging Face protocol."""
    body = {"inputs": instances, "parameters": parameters or {}}
    return ask_json(server, f"/{route}/{mode}", body).json()


@pytest.fixture(scope="module")
def found(server: Server) -> Any:
    """The answers to the client, in the order of its calls."""
    calls: list[Any] = []
    for mode in served_modes():
        calls += [{"verb": "infer", "model": mode, "body": body} for body in bodies_of(mode)]
    for mode in explained_modes():
        body = {"instances": instances_of(mode)[:2], "parameters": EXPLAINED}
        calls += [{"verb": "explain", "model": mode, "body": body}]
    calls += [{"verb": verb, "model": MODE, "body": WRONG} for verb in ("infer", "explain")]
    answers = iter(run_client("kserve_v1_client", base_url=server.inference_url, calls=calls))
    predicted = {mode: [next(answers), next(answers)] for mode in served_modes()}
    explained = {mode: next(answers) for mode in explained_modes()}
    return {"predicted": predicted, "explained": explained, "wrong": list(answers)}


@pytest.mark.parametrize("mode", served_modes())
def test_one_instance_and_several_get_their_predictions(
    server: Server, found: Any, mode: str
) -> None:
    for body, response in zip(bodies_of(mode), found["predicted"][mode], strict=True):
        right = expected(server, "predictions", mode, body["instances"], body["parameters"])
        assert len(right) == len(body["instances"])
        assert not differences(response, {"answer": {"predictions": right}}, 1e-3)


@pytest.mark.parametrize("mode", explained_modes())
def test_each_mode_explains_its_instances(server: Server, found: Any, mode: str) -> None:
    right = expected(server, "explanations", mode, instances_of(mode)[:2], EXPLAINED)
    assert not differences(found["explained"][mode], {"answer": {"explanations": right}}, 1e-2)


def test_the_client_shows_the_error_message(found: Any) -> None:
    for response in found["wrong"]:
        assert response["status"] == 400
        assert response["message"].startswith("inputs is empty; send a text., '400 ")


def test_bodies_of_torchserves_own_kserve_samples_are_answered(server: Server) -> None:
    instances = [{"data": FILM, "target": 0}, {"data": {"b64": "QSBkdWxsIGZpbG0u"}}]
    response = ask_json(server, f"/v1/models/{MODE}:predict", {"instances": instances}).json()
    right = expected(server, "predictions", MODE, [FILM, "A dull film."])
    assert not differences(response, {"predictions": right}, 1e-3)
    response = ask_json(server, f"/v1/models/{MODE}:explain", {"instances": instances[:1]}).json()
    assert response["explanations"][0]["target"]["index"] == 0


def test_vertex_ais_bodies_are_answered_on_each_route(server: Server) -> None:
    body = {"instances": [FILM, "", "Sad."], "parameters": {"top_k": 1}}
    routes = [f"/predictions/{MODE}", f"/predictions/{MODE}/1.0", f"/predictions/{MODE}/1.0/a/b"]
    requests = [{"path": route, "body": json.dumps(body)} for route in routes]
    calls = [{**each, "content_type": "application/json"} for each in requests]
    for response in run_client("requests_client", base_url=server.inference_url, calls=calls):
        fine, wrong, sad = json.loads(response["text"])["predictions"]
        right = expected(server, "predictions", MODE, body["instances"], body["parameters"])
        assert not differences([fine, wrong, sad], right, 1e-3)
        assert (response["status"], wrong["code"]) == (200, 400)


def test_requests_of_both_routes_in_one_batch_get_their_answers(server: Server) -> None:
    body = json.dumps({"instances": [FILM]}).encode()
    questions = [Question(f"/v1/models/{MODE}:{verb}", body) for verb in ("predict", "explain")] * 4
    keys = [list(answer.json()) for answer in ask_at_once(server, questions)]
    assert keys == [["predictions"], ["explanations"]] * 4
