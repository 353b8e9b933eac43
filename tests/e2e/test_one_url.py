"""Every protocol at one URL in front of a real TorchServe, with clients as users install them."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.background import OneUrl, start_one_url
from hf_serve.scripts.serving.ports import free_ports
from hf_serve.scripts.serving.rollout import Rollout
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.tokens import Tokens
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.e2e.asking import ask_json
from tests.e2e.clients import FRAMEWORKS, OLDER_CLIENTS, run_client, run_program
from tests.e2e.served import served_modes
from tests.e2e.test_rollout import SAMPLE, write_config
from tests.serving import differences
from tests.waiting import wait_for

KEY = "a-key-of-this-test"
HEADERS = {"Authorization": f"Bearer {KEY}"}
CLASSIFIER, EMBEDDER, WRITER = "sequence_classification", "sentence_embedding", "text_generation"
TEXTS = ["Nina Vogel lives in Bergen.", "It rains."]
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
SECONDS = 60


@pytest.fixture(scope="module")
def one_url(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n")
    running = start_one_url(server, free_ports().inference, BodyLimits(), keys)
    yield running.inference_url
    running.stop()


@pytest.fixture(scope="module")
def answers(one_url: str) -> Any:
    names = {"writer": WRITER, "embedder": EMBEDDER, "classifier": CLASSIFIER}
    return run_client(
        "one_url_client", url=one_url, key=KEY, texts=TEXTS, messages=MESSAGES, **names
    )


@pytest.fixture(scope="module")
def vectors(server: Server) -> Any:
    return ask_json(server, f"/predictions/{EMBEDDER}", {"inputs": TEXTS}).json()


@pytest.fixture(scope="module")
def chat(server: Server) -> Any:
    body = {"messages": MESSAGES, "max_tokens": 12, "temperature": 0}
    answer = ask_json(server, f"/predictions/{WRITER}/1.0/v1/chat/completions", body).json()
    return answer["choices"][0]["message"]["content"]


def test_openais_client_uses_two_models(answers: Any, vectors: Any, chat: str) -> None:
    found = answers["openai"]
    assert found["chat"] == chat
    assert not differences(found["vectors"], vectors, 1e-3)
    assert set(served_modes()) < set(found["models"])
    assert found["model"] == WRITER


def test_a_stream_has_the_same_text_in_parts(answers: Any, chat: str) -> None:
    parts = answers["openai"]["stream"]
    assert "".join(parts) == chat
    assert len(parts) > 3


def test_openais_client_reads_that_there_is_no_such_model(answers: Any) -> None:
    error = answers["openai"]["unknown"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_hugging_faces_client_chats_and_embeds(answers: Any, vectors: Any, chat: str) -> None:
    assert answers["hugging_face"]["chat"] == chat
    assert not differences(answers["hugging_face"]["vectors"], vectors[:1], 1e-3)


@pytest.fixture
def framework_job(one_url: str) -> dict[str, Any]:
    """What the programs of frameworks are told."""
    connection = {"base_url": f"{one_url}/v1", "key": KEY}
    asked = {"messages": MESSAGES, "prompt": MESSAGES[0]["content"], "texts": TEXTS, "count": 12}
    return {**connection, **asked, "writer": WRITER, "embedder": EMBEDDER}


@pytest.mark.nightly
def test_langchain_litellm_and_llama_index_use_two_models(
    framework_job: dict[str, Any], vectors: Any, chat: str
) -> None:
    found = run_program(FRAMEWORKS, "one_url_frameworks_client", framework_job)
    for answers in found["chats"].values():
        assert answers["answer"] == "".join(answers["stream"]) == chat
    for each in found["vectors"].values():
        assert not differences(each, vectors, 1e-3)


@pytest.mark.nightly
def test_llama_indexs_chat_class_asks_the_model_by_its_name(
    framework_job: dict[str, Any], chat: str
) -> None:
    job = {**framework_job, "model": WRITER}
    found = run_program(OLDER_CLIENTS, "llama_index_chat_client", job)
    assert found["answer"] == "".join(found["stream"]) == chat


def test_anthropics_client_has_the_key_in_its_own_header(one_url: str, chat: str) -> None:
    asked = {"system": "", "messages": MESSAGES, "count": 12}
    found = run_client("anthropic_client", url=one_url, key=KEY, model=WRITER, **asked)
    assert found["answer"] == "".join(found["stream"]) == chat
    assert found["called"] == ["animal", "place"]


def test_tritons_client_reads_metadata_and_asks_versions(server: Server, answers: Any) -> None:
    found = answers["triton"]
    assert (found["ready"], found["inputs"][0]["datatype"]) == (True, "BYTES")
    right = ask_json(server, f"/predictions/{CLASSIFIER}", {"inputs": TEXTS[0]}).json()
    for answer in found["answers"]:
        assert not differences(answer, right[0], 1e-3)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"/predictions/{CLASSIFIER}", {"inputs": TEXTS[0]}),
        (f"/predictions/{CLASSIFIER}/1.0/predict", {"inputs": TEXTS[0]}),
        (f"/explanations/{CLASSIFIER}", {"inputs": TEXTS[0]}),
        (f"/v1/models/{CLASSIFIER}:predict", {"instances": TEXTS}),
        (f"/models/{CLASSIFIER}/invoke?path=/predict", {"inputs": TEXTS[0]}),
        (f"/predictions/{CLASSIFIER}", {"inputs": 5}),
        ("/predictions/nobody", {"inputs": TEXTS[0]}),
    ],
)
def test_torchserves_addresses_have_the_same_answers(
    server: Server, one_url: str, path: str, body: Any
) -> None:
    right = ask_json(server, path, body)
    found = httpx.post(one_url + path, json=body, headers=HEADERS, timeout=SECONDS)
    assert found.status_code == right.status_code
    assert found.headers.get("content-type") == right.headers.get("content-type")
    assert not differences(found.json(), right.json(), 1e-2)


def test_a_request_without_a_key_is_refused_and_health_is_answered(one_url: str) -> None:
    with httpx.Client(base_url=one_url, timeout=SECONDS, trust_env=False) as client:
        assert client.get("/v2/health/ready").json() == {"ready": True}
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 401
        metrics = client.get("/metrics", headers=HEADERS).text
    assert "ts_inference_requests_total" in metrics
    assert "http_requests_total" in metrics


@pytest.mark.nightly
def test_a_rollout_under_load_gives_no_failed_request(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    store = tmp_path / "model_store"
    for version, labels in (("1.0", "old"), ("2.0", "new")):
        config = write_config(tmp_path / version, checkpoint(CLASSIFIER))
        names = tmp_path / version / "index_to_name.json"
        names.write_text(json.dumps({str(number): f"{labels} {number}" for number in range(3)}))
        pack(config, version=version, versioned=True, export_path=store, extra_files=[names])
    (store / "default_versions.json").write_text('{"m": "1.0"}')
    torchserve = TorchServe(
        model_store=store,
        workdir=tmp_path / "work",
        timeout=480,
        config_overrides={"enable_model_api": "true"},
    )
    with torchserve as server:
        running = start_one_url(server, free_ports().inference, BodyLimits())
        try:
            found = _answers_while_rolling_out(server, running, store)
        finally:
            running.stop()
    assert {status for _, status, _ in found} == {200}
    for path in PATHS:
        assert {label for asked, _, label in found if asked == path} == {"old", "new"}


@pytest.mark.nightly
def test_archives_of_a_watched_store_are_served_replaced_and_unloaded(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    store = tmp_path / "model_store"
    config = write_config(tmp_path / "config", checkpoint(CLASSIFIER))
    pack(config, export_path=store, checked=False)
    torchserve = TorchServe(
        model_store=store,
        workdir=tmp_path / "work",
        timeout=480,
        config_overrides={"enable_model_api": "true"},
    )
    with torchserve as server, httpx.Client(timeout=SECONDS, trust_env=False) as client:
        running = start_one_url(server, free_ports().inference, BodyLimits(), watch=store)
        statuses, stopped = Counter[int](), threading.Event()
        management = f"{server.management_url}/models/m"

        def load() -> None:
            while not stopped.is_set():
                answer = client.post(f"{running.inference_url}/predictions/m", json=SAMPLE)
                statuses[answer.status_code] += 1

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            pack(config, export_path=store, version="2.0", checked=False)
            wait_for(lambda: _versions(client, management) == ["2.0"], 240)
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        try:
            assert set(statuses) == {200}
            (store / "m.mar").unlink()
            wait_for(lambda: _versions(client, management) == [], 240)
        finally:
            running.stop()


def test_models_have_workers_while_requests_need_them(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    store = tmp_path / "model_store"
    config = write_config(tmp_path / "config", checkpoint(CLASSIFIER))
    names = ("first", "second", "third")
    for name in names:
        shutil.copy(config, tmp_path / f"{name}.yaml")
        pack(tmp_path / f"{name}.yaml", export_path=store, checked=False)
    torchserve = TorchServe(model_store=store, workdir=tmp_path / "work", timeout=480)
    with torchserve as server, httpx.Client(timeout=SECONDS, trust_env=False) as client:

        def with_workers() -> set[str]:
            described = {
                name: client.get(f"{server.management_url}/models/{name}") for name in names
            }
            return {name for name, each in described.items() if each.json()[0]["workers"]}

        def ask(name: str) -> httpx.Response:
            return client.post(f"{running.inference_url}/predictions/{name}", json=SAMPLE)

        directly = f"{server.inference_url}/predictions/first"
        expected = client.post(directly, json=SAMPLE).json()
        options = ["--models-max", "2", "--keep-alive", "12", "--pin", "first"]
        running = start_one_url(
            server, free_ports().inference, BodyLimits(), limits_of_models=options
        )
        try:
            wait_for(lambda: len(with_workers()) <= 2, SECONDS)
            for name in ("third", "second", "third"):
                assert ask(name).json() == expected
                assert with_workers() == {"first", name}
            with ThreadPoolExecutor(4) as threads:
                answers = list(threads.map(ask, random.Random(0).choices(names, k=24)))
            assert {each.status_code for each in answers} == {200}
            wait_for(lambda: with_workers() == {"first"}, SECONDS)
            listed = client.get(f"{running.inference_url}/v1/models").json()["data"]
            assert {each["id"]: each["state"] for each in listed} == {
                "first": "ready",
                "second": "unloaded",
                "third": "unloaded",
            }
            assert (
                client.post(f"{running.inference_url}/predictions/none", json=SAMPLE).status_code
                == 404
            )
            metrics = client.get(f"{running.inference_url}/metrics").text
            assert 'model_unloads_total{model="third",reason="idle"}' in metrics
        finally:
            running.stop()
        # Without the one URL, TorchServe serves what has workers.
        assert (
            client.post(f"{server.inference_url}/predictions/first", json=SAMPLE).json() == expected
        )


def _versions(client: httpx.Client, management: str) -> list[str]:
    response = client.get(f"{management}/all")
    return [each["modelVersion"] for each in response.json()] if response.is_success else []


PATHS = ("/predict", "/v2/models/m/infer", "/predictions/m")
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [SAMPLE["inputs"]]}


def _answers_while_rolling_out(
    server: Server, running: OneUrl, store: Path
) -> Counter[tuple[str, int, str]]:
    """Return path, status and kind of label of the responses during a rollout that retires."""
    found, stopped = Counter[tuple[str, int, str]](), threading.Event()

    def load(path: str) -> None:
        body = {"inputs": [TENSOR]} if path.endswith("infer") else SAMPLE
        with httpx.Client(timeout=SECONDS, trust_env=False) as client:
            while not stopped.is_set():
                answer = client.post(running.inference_url + path, json=body)
                label = "new" if "new" in answer.text else "old" if "old" in answer.text else ""
                found[path, answer.status_code, label] += 1

    threads = [threading.Thread(target=load, args=[path]) for path in PATHS * 2]
    for thread in threads:
        thread.start()
    try:
        Rollout(
            "m",
            store,
            server.inference_url,
            server.management_url,
            server.metrics_url,
            Tokens(None, server.management_url),
        ).to("2.0", watch=2, retire=True)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    return found
