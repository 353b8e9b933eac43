"""The Open Inference Protocol with the clients of Triton and KServe, and with TorchServe's gRPC.

Every client gets the answers of the Hugging Face protocol to the same inputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ts

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import Question, ask_at_once, ask_json
from tests.e2e.clients import run_client
from tests.e2e.gateway import gateway_to
from tests.e2e.served import served_modes
from tests.modes import cases
from tests.serving import differences

MODE = "sequence_classification"
FILM = "What a lovely, warm film."
TEXTS = [FILM, "Nina Vogel lives in Bergen with her brother Tom.", "A dull, sad Zürich 🎉 film."]
JAR = Path(ts.__file__).parent / "frontend" / "model-server.jar"
LIVE = {"live": True, "ready": True, "model_ready": True}
TOO_MANY = "inputs has 200 items, and this model takes 128 a request; send them in parts."
NOT_A_KEY = "parameters: unknown key topk; did you mean 'top_k'?"


def tensor(name: str, data: list[Any], datatype: str = "BYTES") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(data)], "data": data}


def rows_of(mode: str, count: int) -> list[Any]:
    """Return what the tensors of a call hold, as inputs."""
    return [cases(mode).with_text(text) for text in TEXTS[:count]]


def tensors(mode: str, count: int) -> list[dict[str, Any]]:
    rows = rows_of(mode, count)
    if not isinstance(rows[0], dict):
        return [tensor("args", rows)]
    return [tensor(name, [row[name] for row in rows]) for name in rows[0]]


def expected(server: Server, mode: str, count: int, **parameters: Any) -> list[Any]:
    """Return the answers of the Hugging Face protocol to the same rows."""
    body = {"inputs": rows_of(mode, count), "parameters": {**cases(mode).brief, **parameters}}
    return list(ask_json(server, f"/predictions/{mode}", body).json())


def good_calls() -> list[dict[str, Any]]:
    """Return for each mode a call with one row and one with three."""
    return [
        {"model": mode, "inputs": tensors(mode, count), "parameters": dict(cases(mode).brief)}
        for mode in served_modes()
        for count in (1, 3)
    ]


def wrong_calls() -> list[dict[str, Any]]:
    """Return a call with a bad row among good ones, and four that fail as a whole."""
    texts = [tensor("args", [FILM])]
    return [
        {"model": MODE, "inputs": [tensor("args", [FILM, "", FILM])]},
        {"model": MODE, "inputs": [tensor("args", [""])]},
        {"model": MODE, "inputs": texts, "parameters": {"topk": 1}},
        {"model": MODE, "inputs": [tensor("args", ["a"] * 200)]},
        {"model": "nobody", "inputs": texts},
    ]


def check_good(server: Server, answers: list[Any]) -> None:
    rights = [expected(server, mode, count) for mode in served_modes() for count in (1, 3)]
    assert len(answers) == len(rights)
    for answer, right in zip(answers, rights, strict=True):
        assert not differences(answer, right, 1e-3)


def check_row(server: Server, rows: Any) -> None:
    """Check the answer to a bad row among good ones."""
    first, wrong, last = rows
    right = ask_json(server, f"/predictions/{MODE}", {"inputs": [FILM, FILM]}).json()
    assert not differences([first, last], right, 1e-3)
    assert (wrong["code"], wrong["message"]) == (400, "inputs is empty; send a text.")


@pytest.fixture(scope="module")
def gateway(server: Server) -> Iterator[str]:
    """The address of a gateway to the server."""
    with gateway_to(server.inference_url) as address:
        yield address


@pytest.fixture(scope="module")
def triton_http(server: Server) -> Any:
    """The answers to the client, below each model's path and at the server's own address."""
    host = server.inference_url.removeprefix("http://")
    sent = [*good_calls(), *wrong_calls()]
    calls = [
        {**call, "url": url.format(**call), "binary": binary, "named": not binary, "id": "7"}
        for url, binary in ((host + "/predictions/{model}/1.0", True), (host, False))
        for call in sent
    ]
    gzip = {"request_compression_algorithm": "gzip"}
    packed = {**calls[0], "options": gzip, "version": "1.0"}
    metadata = [{"url": calls[0]["url"], "model": sent[0]["model"]}]
    job = {"transport": "http", "calls": [*calls, packed], "metadata": metadata}
    answers = run_client("triton_client", **job)
    count = len(sent)
    return {
        "bytes": answers["answers"][:count],
        "json": answers["answers"][count : 2 * count],
        "gzip": answers["answers"][-1],
        "metadata": answers["metadata"][0],
    }


class TestTritonsHttpClient:
    @pytest.mark.parametrize("form", ["bytes", "json"])
    def test_gets_correct_answers(self, server: Server, triton_http: Any, form: str) -> None:
        check_good(server, triton_http[form][: len(good_calls())])
        assert not differences(triton_http["gzip"], triton_http["bytes"][0], 1e-3)

    @pytest.mark.parametrize("form", ["bytes", "json"])
    def test_shows_error_messages(self, server: Server, triton_http: Any, form: str) -> None:
        row, empty, unknown, many, _ = triton_http[form][len(good_calls()) :]
        check_row(server, row)
        assert empty == {"status": "400", "message": "inputs is empty; send a text."}
        assert unknown == {"status": "400", "message": NOT_A_KEY}
        assert many == {"status": "413", "message": TOO_MANY}

    def test_reads_the_metadata(self, triton_http: Any) -> None:
        assert {key: triton_http["metadata"][key] for key in LIVE} == LIVE
        assert triton_http["metadata"]["server"]["name"] == "torchserve"
        assert triton_http["metadata"]["model"]["inputs"][0]["datatype"] == "BYTES"


@pytest.fixture(scope="module")
def triton_grpc(gateway: str) -> Any:
    sent = [*good_calls(), *wrong_calls()]
    versioned = [{**call, "version": "1.0"} for call in good_calls()]
    calls = [{**call, "url": gateway, "id": "7"} for call in (*sent, *versioned)]
    metadata = [{"url": gateway, "model": model} for model in (MODE, "nobody")]
    return run_client("triton_client", transport="grpc", calls=calls, metadata=metadata)


class TestTritonsGrpcClient:
    def test_gets_correct_answers(self, server: Server, triton_grpc: Any) -> None:
        count = len(good_calls())
        check_good(server, triton_grpc["answers"][:count])
        check_good(server, triton_grpc["answers"][-count:])

    def test_gets_the_same_through_a_stream(self, triton_grpc: Any) -> None:
        for streamed, alone in zip(triton_grpc["streamed"], triton_grpc["answers"], strict=True):
            same = alone["message"] if isinstance(alone, dict) else alone
            assert not differences(streamed, same, 1e-3)

    def test_shows_error_messages(self, server: Server, triton_grpc: Any) -> None:
        first = len(good_calls())
        row, empty, wrong_key, many, wrong_model = triton_grpc["answers"][first : first + 5]
        check_row(server, row)
        statuses = [each["status"] for each in (empty, wrong_key, many, wrong_model)]
        codes = ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND"]
        assert statuses == [f"StatusCode.{code}" for code in codes]
        assert (wrong_key["message"], many["message"]) == (NOT_A_KEY, TOO_MANY)

    def test_reads_the_metadata(self, triton_grpc: Any) -> None:
        found, missing = triton_grpc["metadata"]
        assert {key: found[key] for key in LIVE} == LIVE
        assert found["model"]["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": ["-1"]}]
        assert missing["status"] == "StatusCode.NOT_FOUND"


@pytest.fixture(scope="module")
def kserve(server: Server, gateway: str) -> Any:
    """The answers to the clients, with tensors in JSON or contents, and as bytes."""
    calls = [{**call, "binary": each} for each in (False, True) for call in good_calls()]
    calls += wrong_calls()
    below = f"{server.inference_url}/predictions/{{model}}/1.0"
    rest = [{**call, "base_url": below.format(**call)} for call in calls[:-1]]
    rest.append({**calls[-1], "base_url": below.format(model=MODE)})
    base_url = below.format(model=MODE)
    job = {"base_url": base_url, "model": MODE, "address": gateway, "rest": rest, "grpc": calls}
    return run_client("kserve_v2_client", **job)


class TestKServesClients:
    @pytest.mark.parametrize("transport", ["rest", "grpc"])
    def test_get_correct_answers(self, server: Server, kserve: Any, transport: str) -> None:
        count = len(good_calls())
        check_good(server, kserve[transport][:count])
        check_good(server, kserve[transport][count : 2 * count])

    def test_see_that_the_server_is_ready(self, kserve: Any) -> None:
        assert kserve["ready"] == [True] * 6

    def test_show_error_messages(self, server: Server, kserve: Any) -> None:
        for transport, statuses in (
            ("rest", [400, 400, 413, 404]),
            ("grpc", ["INVALID_ARGUMENT"] * 2 + ["RESOURCE_EXHAUSTED", "NOT_FOUND"]),
        ):
            row, *wrong = kserve[transport][-5:]
            check_row(server, row)
            assert [each["status"] for each in wrong] == statuses
            assert wrong[1]["message"].startswith(NOT_A_KEY)


@pytest.fixture(scope="module")
def own_grpc(server: Server) -> Any:
    rows = [
        {"model": mode, "inputs": tensors(mode, count), "id": f"{mode}{count}"}
        for mode in served_modes()
        for count in (1, 3)
    ]
    top = [tensor("args", [FILM]), tensor("top_k", [2], "INT64")]
    wrong = [{"model": MODE, "inputs": each["inputs"]} for each in wrong_calls()[:2]]
    more = [{"model": MODE, "inputs": top}, *wrong, {"model": MODE, "inputs": []}]
    own = [
        {"method": method, "model": MODE, "data": text}
        for method in ("Predictions", "StreamPredictions")
        for text in (FILM, json.dumps({"inputs": TEXTS}), "", '{"inputs": 5}')
    ]
    job = {"address": f"127.0.0.1:{server.grpc_port}", "jar": str(JAR)}
    return run_client("torchserve_grpc_client", tensors=[*rows, *more], own=own, **job)


class TestTorchServesOwnGrpc:
    def test_answers_tensors(self, server: Server, own_grpc: Any) -> None:
        calls = [(mode, count) for mode in served_modes() for count in (1, 3)]
        for (mode, count), answer in zip(calls, own_grpc["tensors"], strict=False):
            names = {key: answer[key] for key in ("id", "model", "version", "name", "shape")}
            assert names == {
                "id": f"{mode}{count}",
                "model": mode,
                "version": "1.0",
                "name": "output",
                "shape": [count, 1],
            }
            usual = {"inputs": rows_of(mode, count)}
            right = ask_json(server, f"/predictions/{mode}", usual).json()
            assert not differences(answer["rows"], right, 1e-3)

    def test_takes_parameters_as_tensors(self, server: Server, own_grpc: Any) -> None:
        right = expected(server, MODE, 1, top_k=2)
        assert not differences(own_grpc["tensors"][-4]["rows"], right, 1e-3)

    def test_returns_errors_as_answers(self, server: Server, own_grpc: Any) -> None:
        row, *wrong = own_grpc["tensors"][-3:]
        check_row(server, row["rows"])
        for each in wrong:
            assert (each["name"], each["shape"], each["rows"][0]["code"]) == ("error", [1, 1], 400)

    def test_answers_texts_and_json_once_and_as_a_stream(
        self, server: Server, own_grpc: Any
    ) -> None:
        bodies = [{"inputs": FILM}, {"inputs": TEXTS}]
        rights = [ask_json(server, f"/predictions/{MODE}", body).json() for body in bodies]
        for answers in (own_grpc["own"][:4], own_grpc["own"][4:]):
            film, texts, empty, number = (part for [part] in answers)
            assert not differences([film, texts], rights, 1e-3)
            assert [empty["code"], number["code"]] == [400, 400]


def test_bodies_of_mlservers_hugging_face_runtime_are_answered(server: Server) -> None:
    """As in its documentation: arguments of a pipeline, in several shapes."""
    items = [json.dumps({"inputs": text, "parameters": {"top_k": 1}}) for text in TEXTS]
    inputs = [
        [tensor("args", TEXTS)],
        [{**tensor("array_inputs", [[text] for text in TEXTS]), "shape": [3, 1]}],
        [tensor("text_inputs", TEXTS), tensor("top_k", [1, 1, 1], "INT64")],
        [{**tensor("args", items), "parameters": {"content_type": "hg_jsonlist"}}],
    ]
    path = f"/v2/models/{MODE}/infer"
    calls = [{"path": path, "body": json.dumps({"id": "1", "inputs": each})} for each in inputs]
    typed = [{**call, "content_type": "application/json"} for call in calls]
    right = expected(server, MODE, 3, top_k=1)
    plain = ask_json(server, f"/predictions/{MODE}", {"inputs": TEXTS}).json()
    for answer, rows in zip(
        run_client("requests_client", base_url=server.inference_url, calls=typed),
        [plain, plain, right, right],
        strict=True,
    ):
        (output,) = json.loads(answer["text"])["outputs"]
        assert (output["shape"], output["parameters"]) == ([3, 1], {"content_type": "hg_jsonlist"})
        assert not differences([json.loads(each) for each in output["data"]], rows, 1e-3)


def test_explanations_are_returned_on_each_route(server: Server) -> None:
    body = {"inputs": [tensor("args", TEXTS[:2])]}
    right = ask_json(server, f"/explanations/{MODE}", {"inputs": TEXTS[:2]}).json()
    for path in (
        f"/v2/models/{MODE}/explain",
        f"/predictions/{MODE}/1.0/v2/models/{MODE}/explain",
        f"/explanations/{MODE}",
    ):
        (output,) = ask_json(server, path, body).json()["outputs"]
        assert not differences([json.loads(each) for each in output["data"]], right, 1e-2)


def test_good_and_bad_bodies_in_one_batch_get_their_answers(server: Server) -> None:
    path = f"/predictions/{MODE}/1.0/v2/models/{MODE}/infer"
    good = json.dumps({"id": "a", "inputs": [tensor("args", [FILM])]}).encode()
    bodies = [good, b"{", json.dumps({"inputs": [tensor("args", [1])]}).encode(), good]
    answers = ask_at_once(server, [Question(path, body) for body in bodies * 3])
    assert [answer.status_code for answer in answers] == [200, 400, 400, 200] * 3
    for number, answer in enumerate(answers):
        assert answer.json().keys() >= ({"outputs"} if number % 4 in (0, 3) else {"error"})
