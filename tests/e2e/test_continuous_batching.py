"""Servers that answer each text when it ends: a tiny model, with each engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests import tiny
from tests.e2e.asking import CLIENT, ask_json
from tests.e2e.clients import run_client
from tests.serving import Served
from tests.vllm_python import VLLM_PYTHON
from tests.waiting import wait_for

MODE = "text_generation"
PATH = f"/predictions/{MODE}"
CHAT = f"{PATH}/1.0/v1/chat/completions"
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
RUNNING, WAITING = 8, 16
POSITIONS = 2048
END = 0
# New tokens of a text that takes seconds.
LONG = 1200
# Steps take milliseconds.
SLOW: dict[str, Any] = {
    "n_positions": POSITIONS,
    "n_embd": 256,
    "n_layer": 8,
    "n_head": 8,
}
ENGINES: dict[str, dict[str, str]] = {
    "pretrained": {"save_mode": "pretrained"},
    "openvino": {"save_mode": "openvino"},
    "vllm": {"engine": "vllm", "vllm_python": str(VLLM_PYTHON)},
}
MARKED = ("openvino", "vllm")
PROMPTS = [f"Once upon a time there were {number} foxes" for number in range(24)]


@pytest.fixture(scope="module")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.write(tmp_path_factory.mktemp("tiny"), MODE, **SLOW)
    _make_end_unlikely(folder / "model.safetensors")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def _make_end_unlikely(path: Path) -> None:
    """Give the end token the logit 0, so that no text ends early that has no grammar."""
    weights = load_file(path)
    weights["transformer.wte.weight"][END] = 0
    save_file(weights, path, metadata={"format": "pt"})


@pytest.fixture(
    scope="module",
    params=[
        # Its parts are tested in test_batch_scheduler.py and test_transformers_paged.py.
        pytest.param("pretrained", marks=pytest.mark.nightly),
        *(pytest.param(each, marks=getattr(pytest.mark, each)) for each in MARKED),
    ],
)
def engine(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(
    engine: str, checkpoint_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("store")
    document = {
        "continuousBatching": True,
        "batchSize": 64,
        "maxBatchDelay": 1,
        "startupTimeout": 480,
        "handler": {
            "mode": MODE,
            "model_name": str(checkpoint_folder),
            **ENGINES[engine],
            "calibration": "rows.jsonl",
            "tokenizer": {"model_max_length": POSITIONS},
            "max_num_seqs": RUNNING,
            "max_waiting": WAITING,
        },
    }
    rows = [json.dumps({"inputs": prompt}) for prompt in PROMPTS[:2]]
    (store / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    config = store / f"{MODE}.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    template, build = checkpoint_folder / "chat_template.jinja", tmp_path_factory.mktemp("build")
    pack(config, export_path=store, build=build, extra_files=[template], checked=False)
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(workdir, store, timeout=480) as server:
        yield server


@pytest.fixture(scope="module")
def reference(checkpoint_folder: Path) -> Served:
    """The checkpoint itself, whose texts `generate` makes one by one."""
    return Served(checkpoint_folder, MODE)


def generate(server: Server, prompt: str, **parameters: Any) -> Any:
    reply = ask_json(server, PATH, {"inputs": prompt, "parameters": parameters})
    assert reply.status_code == 200, reply.text
    return reply.json()


def running(server: Server) -> float:
    """Return how many texts the server says it runs or keeps waiting."""
    lines = httpx.get(f"{server.metrics_url}/metrics", trust_env=False).text.splitlines()
    named = [line for line in lines if line.startswith(("hf_running_texts{", "hf_waiting_texts{"))]
    return sum(float(line.rpartition(" ")[2]) for line in named)


def worker(server: Server) -> psutil.Process:
    return psutil.Process(server.describe(MODE)[0]["workers"][0]["pid"])


def events(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def chat(prompt: str, count: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "max_tokens": count, "stream": True}


def streamed(server: Server, prompt: str, count: int) -> str:
    with CLIENT.stream("POST", server.inference_url + CHAT, json=chat(prompt, count)) as response:
        assert response.status_code == 200
        parts = [event["choices"][0]["delta"].get("content", "") for event in events(response)]
    return "".join(parts)


def test_texts_are_those_of_generate_alone_and_under_load_streamed_or_not(
    server: Server, reference: Served
) -> None:
    expected = [reference.ask(prompt, max_new_tokens=24) for prompt in PROMPTS]
    assert generate(server, PROMPTS[0], max_new_tokens=24) == expected[0]
    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        together = threads.map(lambda prompt: generate(server, prompt, max_new_tokens=24), PROMPTS)
        assert list(together) == expected
        streams = threads.map(lambda prompt: streamed(server, prompt, 24), PROMPTS)
        chats = [
            reference.ask([{"role": "user", "content": prompt}], max_new_tokens=24)
            for prompt in PROMPTS
        ]
        assert list(streams) == [chat[0]["generated_text"][-1]["content"] for chat in chats]


def test_a_short_text_leaves_before_a_long_one_that_came_with_it(server: Server) -> None:
    """By torch, these penalties need a batch; both wait for a third text, so that they share it."""
    begun, ended = Event(), list[int]()

    def occupy() -> None:
        body = {**chat(PROMPTS[1], LONG // 2), "presence_penalty": 0.5}
        with CLIENT.stream("POST", server.inference_url + CHAT, json=body) as response:
            for _ in events(response):
                begun.set()

    def note(count: int) -> None:
        generate(server, PROMPTS[0], max_new_tokens=count, presence_penalty=0.5)
        ended.append(count)

    with ThreadPoolExecutor(3) as threads:
        threads.submit(occupy)
        assert begun.wait(60)
        list(threads.map(note, (LONG, LONG // 2 + 1)))
    assert ended == [LONG // 2 + 1, LONG]


def test_a_short_text_does_not_wait_for_a_long_one(server: Server) -> None:
    begun = Event()

    def read_long() -> None:
        body = chat(PROMPTS[0], LONG)
        with CLIENT.stream("POST", server.inference_url + CHAT, json=body) as response:
            for _ in events(response):
                begun.set()

    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(read_long)
        assert begun.wait(60)
        assert generate(server, PROMPTS[1], max_new_tokens=2)
        assert not long.done()


def test_a_mistake_is_answered_beside_running_texts(server: Server, engine: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        text = threads.submit(generate, server, PROMPTS[0], max_new_tokens=100)
        wrong = threads.submit(ask_json, server, PATH, {"inputs": 3})
        special = {"inputs": "a", "parameters": {"do_sample": True, "typical_p": 0.5}}
        other = threads.submit(ask_json, server, PATH, special)
        assert wrong.result().status_code == 400
        if engine == "vllm":
            assert other.result().status_code == 422
            assert other.result().json()["message"].startswith("typical_p 0.5 is not supported by ")
        else:
            assert other.result().status_code == 200
        assert text.result()[0]["generated_text"].startswith(PROMPTS[0])


def test_the_client_of_openai_parses_texts_and_calls_tools_beside_running_texts(
    server: Server,
) -> None:
    url = f"{server.inference_url}{PATH}/1.0/v1"
    alone = [generate(server, prompt, max_new_tokens=100) for prompt in PROMPTS[:4]]
    with ThreadPoolExecutor(5) as threads:
        client = threads.submit(run_client, "openai_structured_client", base_url=url)
        beside = []
        while not client.done():
            beside.append(
                list(threads.map(partial(generate, server, max_new_tokens=100), PROMPTS[:4]))
            )
    assert client.result() == {
        "parsed": ["Animal", "stop"],
        "object": "{",
        "required": [["Animal"], "tool_calls"],
        "named": [["Animal"], "tool_calls"],
        "streamed": [["Animal"], "tool_calls"],
        "auto": True,
        "mistake": 400,
    }
    assert all(texts == alone for texts in beside)


def test_the_grammar_of_text_generation_inference_is_followed(server: Server) -> None:
    given = {"grammar": {"type": "regex", "value": "[0-9]{3}-[a-f]{4}"}, "details": True}
    body = {"inputs": PROMPTS[0], "parameters": given}
    answer = ask_json(server, f"{PATH}/1.0/generate", body).json()
    assert re.fullmatch("[0-9]{3}-[a-f]{4}", answer["generated_text"])
    assert answer["details"]["finish_reason"] == "eos_token"


def test_with_a_full_queue_a_request_is_told_to_come_back(server: Server) -> None:
    sampling = {"do_sample": True, "num_return_sequences": RUNNING + WAITING}
    many = {"inputs": PROMPTS[0], "parameters": {"max_new_tokens": 300, **sampling}}
    one = {"inputs": PROMPTS[0], "parameters": {"max_new_tokens": 1}}
    refused = []

    def fill() -> httpx.Response:
        # It finds no place itself while the other one has one.
        while (reply := ask_json(server, PATH, many)).status_code == 503:
            pass
        return reply

    with ThreadPoolExecutor(1) as threads:
        full = threads.submit(fill)
        while not full.done():
            reply = ask_json(server, PATH, one)
            if reply.status_code != 200:
                refused.append(reply)
    assert full.result().status_code == 200
    assert {reply.status_code for reply in refused} == {503}
    assert refused[0].headers["Retry-After"] == "1"


@pytest.mark.parametrize("settings", [{}, {"logit_bias": {"5": -100}}], ids=["plain", "biased"])
def test_clients_that_hang_up_leave_nothing_behind(
    server: Server, settings: dict[str, Any]
) -> None:
    body = {**chat(PROMPTS[0], LONG), **settings}
    generate(server, PROMPTS[0], max_new_tokens=1, **settings)

    def hang_up(_: int) -> None:
        with CLIENT.stream("POST", server.inference_url + CHAT, json=body) as response:
            next(events(response))
            wait_for(lambda: running(server) > 0)

    process = worker(server)
    threads_before = process.num_threads()
    with ThreadPoolExecutor(RUNNING) as threads:
        list(threads.map(hang_up, range(RUNNING)))

    def is_as_before() -> bool:
        return running(server) == 0 and process.num_threads() <= threads_before + 1

    wait_for(is_as_before, 120)


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["kill", "suspend"])
def test_the_end_of_the_engine_fails_its_texts_and_the_next_worker_answers(
    server: Server, engine: str, end: str
) -> None:
    """Also where it hangs, within `responseTimeout`, which is 120 seconds by default."""
    if engine == "pretrained":
        pytest.skip("it has no process of its own")
    before = generate(server, PROMPTS[0], max_new_tokens=4)
    children = worker(server).children()
    process = next(each for each in children if "_process.py" in " ".join(each.cmdline()))
    processes = [process, *process.children(recursive=True)]

    def computed() -> float:
        return sum(each.cpu_times().user for each in processes)

    idle = computed()
    with ThreadPoolExecutor(3) as threads:
        body = {"inputs": PROMPTS[0], "parameters": {"max_new_tokens": LONG}}
        texts = [threads.submit(ask_json, server, PATH, body) for _ in range(3)]
        # They take seconds.
        wait_for(lambda: computed() > idle + 0.2)
        getattr(process, end)()
    for reply in (text.result() for text in texts):
        assert reply.status_code == 503, reply.text
        # The time limit of a text is shorter than the time in which a process that hangs is found.
        assert end == "suspend" or "worker starts again" in reply.json()["message"]
    wait_for(lambda: ask_json(server, PATH, {"inputs": PROMPTS[0]}).status_code == 200, 240)
    assert generate(server, PROMPTS[0], max_new_tokens=4) == before


def test_a_text_is_explained_beside_others(server: Server) -> None:
    body = {"inputs": "Once upon", "parameters": {"max_new_tokens": 2}}
    with ThreadPoolExecutor(2) as threads:
        explained = threads.submit(ask_json, server, f"/explanations/{MODE}", body)
        assert generate(server, "Once", max_new_tokens=100)
        assert explained.result().json()["method"] == "feature_ablation"


def test_a_second_worker_does_not_load_and_the_first_one_answers(server: Server) -> None:
    def scale(workers: int) -> None:
        url = f"{server.management_url}/models/{MODE}"
        numbers = {"min_worker": workers, "max_worker": workers}
        assert httpx.put(url, params=numbers, trust_env=False).status_code == 202

    expected = generate(server, PROMPTS[0], max_new_tokens=4)
    scale(2)
    try:
        sentence = "continuousBatching: this model has a worker already"
        wait_for(lambda: sentence in server.log("model_log.log"), 120)
        with ThreadPoolExecutor(len(PROMPTS)) as threads:
            ask = partial(generate, server, max_new_tokens=4)
            assert expected in threads.map(ask, PROMPTS)
    finally:
        scale(1)
    assert generate(server, PROMPTS[0], max_new_tokens=4) == expected
