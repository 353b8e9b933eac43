"""Requests for processes on other machines: what each gets, and that only values are passed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from hf_serve.handlers.process.ranks import SharedRequest, decode_message, encode_message
from hf_serve.scripts.installation import ROOT

REQUESTS = [
    SharedRequest({"body": b'{"inputs": "a \xc3\xa9"}'}, {"Accept": "text/html"}, streams=True),
    SharedRequest({"data": "text", "parameters": bytearray(b"\x00\xff")}, {}, streams=False),
    SharedRequest({}, {"describe": "True"}, streams=False),
    SharedRequest({"body": {"inputs": [1, None]}}, {"data": {"content-type": ""}}, streams=True),
]
SHARING = """
from torch import distributed
from hf_serve.handlers.process.ranks import RequestBroadcast
from tests.handlers.process.test_request_broadcast import REQUESTS

distributed.init_process_group("gloo")
broadcast = RequestBroadcast()
for size in range(len(REQUESTS)):
    if distributed.get_rank() == 0:
        broadcast.share_requests(REQUESTS[:size])
    else:
        assert broadcast.receive_requests() == REQUESTS[:size]
assert broadcast.share({"rank": distributed.get_rank()}) == {"rank": 0}
distributed.barrier()
distributed.destroy_process_group()
"""


def test_requests_are_the_same_behind_a_message() -> None:
    found = [
        SharedRequest(**each)
        for each in decode_message(bytes(encode_message(list(map(asdict, REQUESTS)))))
    ]
    assert found == REQUESTS
    assert isinstance(found[0].row["body"], bytes)


def test_a_message_is_json() -> None:
    json.loads(encode_message([asdict(each) for each in REQUESTS]))


@pytest.mark.nightly
def test_each_process_gets_every_batch(tmp_path: Path) -> None:
    script = tmp_path / "sharing.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{SHARING}", encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run([*torchrun, "--nproc-per-node", "2", str(script)], check=True, timeout=120)
