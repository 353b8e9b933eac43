from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.generation import YAML
from benchmarks.ratio import Ratio
from benchmarks.text_generation.contender import (
    GenerationContender,
    HangUps,
    Job,
    Latency,
    Plan,
    Speed,
    Turn,
)
from benchmarks.text_generation.session import NAMES, Entry, Session
from benchmarks.text_generation.summary import TARGETS, lines, summary
from benchmarks.text_generation.workloads import SETTINGS

LATENCY = Latency(idle_ms=10, busy_ms=20, gap_p50_ms=5, gap_p99_ms=15)
HANG_UPS = HangUps(200, 1000, 1100, 7, 7, 0.0, 10.0, 12.0, 11.0)


class Named(GenerationContender):
    """A contender that is never measured."""

    precision = "bfloat16"

    def __init__(self, name: str) -> None:
        self.name = name

    def measure(self, job: Job) -> Turn:
        raise NotImplementedError


def entry(name: str, *speeds: int, failure: str | None = None) -> Entry:
    turns = [Turn({setting: Speed(each, 1.0) for setting in SETTINGS}) for each in speeds]
    return Entry(Named(name), turns, failure)


def test_ratios_compare_the_same_round() -> None:
    found = lines([entry("kit", 100, 90, 300), entry("vllm", 50, 60, 100)])
    line = next(each for each in found if (each.contender, each.setting) == ("vllm", "equal"))
    assert line.kit_ratio == Ratio(median=2.0, low=1.5, high=3.0)
    assert line.tokens_per_second == 60
    assert line.target == 1.2


def test_the_kit_is_not_compared_with_itself_and_others_have_no_ratio_without_it() -> None:
    assert {each.kit_ratio for each in lines([entry("kit", 100)])} == {None}
    assert {each.kit_ratio for each in lines([entry("vllm", 100)])} == {None}


def test_a_failed_contender_has_no_line_and_its_message_is_kept() -> None:
    found = summary([entry("kit", 100), entry("vllm", 50, failure="It did not start.")])
    assert {each["contender"] for each in found["lines"]} == {"kit"}
    assert found["contenders"]["vllm"]["failure"] == "It did not start."


def test_latencies_are_medians_and_hang_ups_those_of_the_worst_round() -> None:
    kit = entry("kit_streamed", 1, 1, 1)
    worst = replace(HANG_UPS, bytes_after=9000)
    kit.turns = [
        replace(kit.turns[0], latency=replace(LATENCY, busy_ms=busy), hang_ups=hang_ups)
        for busy, hang_ups in ((20, HANG_UPS), (90, worst), (30, HANG_UPS))
    ]
    found = summary([kit])
    assert found["latency"]["busy_ms"] == 30
    assert found["hang_ups"]["bytes_after"] == 9000


def test_latency_is_missing_without_streams() -> None:
    found = summary([entry("kit", 100)])
    assert found["latency"] is None and found["hang_ups"] is None


def test_contenders_are_known_by_their_names(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path, Plan(), 1, (), YAML, True, lambda _: None)
    found = session.contenders(Job("model", tmp_path, 512, Plan()), tmp_path)
    assert tuple(each.name for each in found) == NAMES
    assert TARGETS.keys() <= set(NAMES)
