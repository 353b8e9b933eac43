"""One Llama over two machines: TorchServe on the first, `scripts/join_model.py` on the second.

The machines are two network namespaces, which reach each other by a pair of virtual devices alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from tests import tiny
from tests.serving import Served
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly
MODE = "text_generation"
PROMPTS = ("Once upon a time", "The weather is nice today", "Ada lives in Paris and works")
NUMBER = os.getpid() % 10_000
FIRST, SECOND = f"first{NUMBER}", f"second{NUMBER}"
ADDRESSES = {FIRST: "10.77.0.1", SECOND: "10.77.0.2"}
DEVICE = "machines0"
ASK = """
import json, sys, httpx
url, *bodies = sys.argv[1:]
for body in bodies:
    answer = httpx.post(url, json=json.loads(body), timeout=120, trust_env=False)
    print(json.dumps([answer.status_code, answer.json()]))
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def on(machine: str, *command: str | Path) -> list[str]:
    return ["ip", "netns", "exec", machine, *map(str, command)]


@pytest.fixture(scope="module")
def machines() -> Iterator[None]:
    """Two network namespaces with an address each."""
    try:
        for machine in ADDRESSES:
            ip("netns", "add", machine)
        # The second end is created in the other namespace.
        link = ("link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", SECOND)
        ip("-n", FIRST, *link)
        for machine, address in ADDRESSES.items():
            ip("-n", machine, "address", "add", f"{address}/24", "dev", DEVICE)
            ip("-n", machine, "link", "set", DEVICE, "up")
            ip("-n", machine, "link", "set", "lo", "up")
        yield
    finally:
        for machine in ADDRESSES:
            subprocess.run(["ip", "netns", "delete", machine], check=False, capture_output=True)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("llama"), MODE, family="Llama")


@pytest.fixture(scope="module")
def whole(llama: Path) -> Served:
    return Served(llama, MODE)


@pytest.fixture(scope="module")
def served(
    machines: None, llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """The work folder of TorchServe, and the process on the second machine."""
    folder = tmp_path_factory.mktemp("two")
    config = {
        "parallelType": "tp",
        "startupTimeout": 480,
        "responseTimeout": 60,
        "torchrun": {
            "nnodes": 2,
            "nproc-per-node": 1,
            "node-rank": 0,
            "rdzv-backend": "static",
            "rdzv-endpoint": f"{ADDRESSES[FIRST]}:29400",
        },
        "batchSize": 4,
        "maxBatchDelay": 100,
        "handler": {"mode": MODE, "model_name": str(llama), "dtype": "float32"},
    }
    (folder / "llama.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    archive = pack(folder / "llama.yaml", export_path=folder / "store", checked=False).path
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": DEVICE}
    serve = ["-m", "hf_serve.scripts.serve", "{}", "--workdir", folder / "torchserve"]
    start = [str(each).format("start") for each in serve]
    with (folder / "second.log").open("wb") as output:
        second = subprocess.Popen(
            on(SECOND, sys.executable, "-m", "hf_serve.scripts.join_model", archive),
            cwd=ROOT,
            env={**environment, "UNPACKED_ARCHIVES": str(folder / "unpacked")},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        done = subprocess.run(
            on(
                FIRST, sys.executable, *start, "--model-store", folder / "store", "--timeout", "400"
            ),
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=450,
        )
        assert done.returncode == 0, done.stdout + done.stderr + (folder / "second.log").read_text()
        yield folder, second
    finally:
        stop = [str(each).format("stop") for each in serve]
        subprocess.run(on(FIRST, sys.executable, *stop), cwd=ROOT, check=False, timeout=60)
        os.killpg(second.pid, signal.SIGKILL)
        second.wait()


def ask(*bodies: Any) -> list[tuple[int, Any]]:
    """Return status and body of the responses to requests from the first machine, in turn."""
    url = "http://127.0.0.1:8080/predictions/llama"
    command = on(FIRST, sys.executable, "-c", ASK, url, *map(json.dumps, bodies))
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def question(prompt: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 12, **parameters}}


def test_two_machines_generate_the_same_text_as_one(
    served: tuple[Path, subprocess.Popen[bytes]], whole: Served
) -> None:
    bodies = [
        question(prompt, **settings)
        for prompt in PROMPTS
        for settings in ({}, {"do_sample": True, "seed": 5}, {"num_beams": 2})
    ]
    assert ask(*bodies) == [whole.post(body)[0] for body in bodies]


def test_a_request_that_is_refused_leaves_both_in_step(
    served: tuple[Path, subprocess.Popen[bytes]], whole: Served
) -> None:
    body = question(PROMPTS[0])
    wrong, right = ask({"inputs": 5}, body)
    assert wrong[0] == 400
    assert right == whole.post(body)[0]


def test_each_machine_has_one_part(served: tuple[Path, subprocess.Popen[bytes]]) -> None:
    folder, _ = served
    message = "Model is split: this is one part of 2, on cpu"
    logs = (folder / "torchserve" / "logs" / "model_log.log", folder / "second.log")
    wait_for(lambda: all(log.read_text("utf-8").count(message) == 1 for log in logs))
