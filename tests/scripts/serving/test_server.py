from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from hf_serve.scripts.serving.server import drain
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.standins.archives import write_archive
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("small_fork_server")

# Computes until a file is there, as a model does.
BUSY = """
from pathlib import Path

class Busy:
    def initialize(self, context):
        pass

    def handle(self, data, context):
        folder = Path(FOLDER)
        (folder / "begun").touch()
        while not (folder / "end").exists():
            pass
        return ["answered"] * len(data)
"""


@pytest.mark.server
def test_requests_that_run_or_wait_are_answered_before_the_server_stops(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    write_archive(store, "busy", BUSY.replace("FOLDER", repr(str(tmp_path))))
    with TorchServe(tmp_path / "work", model_store=store) as server, ThreadPoolExecutor(2) as pool:
        url = f"{server.inference_url}/predictions/busy"
        requests = [pool.submit(httpx.post, url, content=b"x", timeout=120) for _ in range(2)]
        wait_for((tmp_path / "begun").exists)

        answered_at_once = drain(server, timeout=2.0)
        (tmp_path / "end").touch()
        answered = drain(server, timeout=60.0)
        server.stop()

        assert (answered_at_once, answered) == (False, True)
        assert drain(server, timeout=0.0), "a server that has ended has no requests"
        assert [request.result().text for request in requests] == ["answered"] * 2


def test_a_server_is_idle_where_two_looks_in_a_row_find_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting, looks = iter([0, 1, 0, 0]), list[float]()
    monkeypatch.setattr("hf_serve.scripts.serving.server._waiting", lambda _server: next(waiting))
    monkeypatch.setattr("time.sleep", looks.append)
    server: Any = SimpleNamespace(is_alive=lambda: True, workers=list)
    assert drain(server)
    assert len(looks) == 4
