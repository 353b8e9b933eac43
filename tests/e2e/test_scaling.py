"""Workers that the management API starts share the cores with those that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hf_serve.handlers.process.resources import available_cores
from hf_serve.handlers.process.threads import RECOUNT_INTERVAL
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.e2e.asking import ask_json
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(available_cores() < 2, reason="one core cannot be divided"),
]
MODE = "sequence_classification"


@pytest.fixture
def server(packed: Callable[..., Path], tmp_path: Path) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        archive = packed("pretrained", MODE)
        with TorchServe(tmp_path, model_store=archive.parent, timeout=480) as server:
            yield server


def test_the_threads_of_all_workers_follow_a_second_worker(server: Server) -> None:
    (model,) = server.models
    cores = available_cores()
    wait_for(lambda: f"Threads of this process: {cores}\n" in server.log("model_log.log"))
    scaled = httpx.put(
        f"{server.management_url}/models/{model}?min_worker=2&synchronous=true", timeout=480
    )
    assert scaled.status_code == 200, scaled.text
    wait_for(lambda: f"Threads of this process: {cores // 2}\n" in server.log("model_log.log"))

    def is_followed() -> bool:
        assert ask_json(server, f"/predictions/{model}", {"inputs": "fine"}).status_code == 200
        changed = f"Threads of torch: {cores // 2} instead of {cores}\n"
        return changed in server.log("model_log.log")

    wait_for(is_followed, seconds=RECOUNT_INTERVAL + 30)
