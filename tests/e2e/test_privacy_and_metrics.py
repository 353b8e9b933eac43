"""The server's logs and metrics have numbers, and never the text of a request."""

from __future__ import annotations

import re

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, Question, ask_at_once, ask_json
from tests.e2e.served import served_modes
from tests.samples import inputs_of
from tests.waiting import wait_for

FORWARD_BUCKET = re.compile(
    r'hf_stage_seconds_bucket\{stage="forward",le="([^"]+)",'
    r'ModelName="sequence_classification"[^}]*\} (\S+)'
)
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
    wait_until_written(server)
    assert SECRET.lower() not in server.logs().lower()


def test_counts_and_stage_times_are_on_the_prometheus_endpoint(server: Server) -> None:
    ask_json(server, "/predictions/sequence_classification", {"inputs": ["one", "two two two"]})
    names = ["requests_total", "rows_total", "tokens_total", "padding_share", "batch_size"]
    names += [
        f"{stage}_time" for stage in ("read", "parse", "encode", "forward", "decode", "write")
    ]

    def is_complete() -> bool:
        text = CLIENT.get(server.metrics_url).text
        return all(f"hf_{name}" in text for name in names)

    wait_for(is_complete)


def test_histograms_of_stages_are_on_the_prometheus_endpoint(server: Server) -> None:
    ask_json(server, "/predictions/sequence_classification", {"inputs": "one"})

    def buckets() -> dict[float, float]:
        text = CLIENT.get(server.metrics_url).text
        return {float(bound): float(count) for bound, count in FORWARD_BUCKET.findall(text)}

    wait_for(buckets)
    counts = [count for _, count in sorted(buckets().items())]
    assert len(counts) > 10
    assert counts == sorted(counts)
    assert counts[-1] >= 1


def test_requests_are_logged_in_the_access_log_only(server: Server) -> None:
    before = wait_until_written(server)
    for _ in range(5):
        ask_json(server, "/predictions/sequence_classification", {"inputs": "one"})
    wait_for(lambda: lines(server)[-1] >= before[-1] + 5)
    after = wait_until_written(server)
    assert [now - was for now, was in zip(after, before, strict=True)] == [0, 0, 5]


def lines(server: Server) -> list[int]:
    """Return how many lines each log has."""
    names = ("ts_log.log", "model_log.log", "access_log.log")
    return [server.log(name).count("\n") for name in names]


def wait_until_written(server: Server) -> list[int]:
    """Wait until no log grows for a second, as lines follow the answers, and count them."""
    counts: list[list[int]] = []

    def is_unchanged() -> bool:
        counts.append(lines(server))
        return len(counts) > 50 and counts[-1] == counts[-50]

    wait_for(is_unchanged)
    return counts[-1]
