"""The server's logs and metrics have numbers, and never the text of a request."""

from __future__ import annotations

import time

from scripts.kit.server import Server
from tests.e2e.asking import CLIENT, Question, ask_at_once, ask_json
from tests.e2e.served import served_modes
from tests.samples import inputs_of
from tests.waiting import wait_for

SECRET = "Xanthippe-4711"


def test_no_request_text_reaches_a_log(server: Server) -> None:
    for mode in served_modes():
        for verb in ("predictions", "explanations"):
            ask_json(server, f"/{verb}/{mode}", {"inputs": inputs_of(mode, f"{SECRET} sings.")})
            ask_json(server, f"/{verb}/{mode}", {"inputs": [SECRET], "parameters": {SECRET: 1}})
    ask_at_once(
        server,
        [Question(f"/predictions/{mode}", f"{{'{SECRET}".encode()) for mode in served_modes()],
    )
    time.sleep(1)
    assert SECRET.lower() not in server.logs().lower()


def test_counts_and_stage_times_are_on_the_prometheus_endpoint(server: Server) -> None:
    ask_json(server, "/predictions/sequence_classification", {"inputs": ["one", "two two two"]})
    deadline = time.monotonic() + 20
    names = ["requests_total", "rows_total", "tokens_total", "padding_share", "batch_size"]
    names += [
        f"{stage}_time" for stage in ("read", "parse", "encode", "forward", "decode", "write")
    ]
    while time.monotonic() < deadline:
        text = CLIENT.get(server.metrics_url).text
        if all(f"hf_{name}" in text for name in names):
            return
        time.sleep(0.5)
    missing = [name for name in names if f"hf_{name}" not in text]
    raise AssertionError(f"not on the endpoint: {missing}")


def test_requests_are_logged_in_the_access_log_only(server: Server) -> None:
    names = ("ts_log.log", "model_log.log", "access_log.log")

    def lines() -> list[int]:
        return [server.log(name).count("\n") for name in names]

    def is_unchanged() -> bool:
        before = lines()
        time.sleep(1)
        return lines() == before

    wait_for(is_unchanged)  # the log is written shortly after the answer
    before = lines()
    for _ in range(5):
        ask_json(server, "/predictions/sequence_classification", {"inputs": "one"})
    wait_for(lambda: lines()[-1] >= before[-1] + 5)
    wait_for(is_unchanged)
    assert [after - was for after, was in zip(lines(), before, strict=True)] == [0, 0, 5]
