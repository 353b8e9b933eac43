from __future__ import annotations

import logging
import struct
from socket import socketpair
from typing import Any

from ts.protocol.otf_message_handler import retrieve_msg

from hf_serve.handlers.process.packages import silence_libraries


def test_a_worker_prints_no_line_for_each_batch(caplog: Any) -> None:
    silence_libraries()
    frontend, worker = socketpair()
    with caplog.at_level(logging.INFO), frontend, worker:
        frontend.sendall(b"I" + struct.pack("!i", -1))
        assert retrieve_msg(worker) == (b"I", [])
        logging.info("something else")
    assert caplog.messages == ["something else"]
