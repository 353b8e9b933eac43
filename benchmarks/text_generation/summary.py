"""Summarize the rounds: tokens per second, ratios, and what the project promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Protocol

from benchmarks.ratio import Ratio
from benchmarks.text_generation.contender import GenerationContender, HangUps, Latency, Turn
from benchmarks.text_generation.workloads import SETTINGS

KIT = "kit"
# The least ratio of this kit's tokens per second to those of a contender, by setting.
TARGETS: Mapping[str, Mapping[str, float]] = {
    "transformers_static": {"equal": 1.8, "own": 1.5},
    "transformers_single": {"equal": 10.0, "own": 10.0},
    "openvino_genai": {"equal": 0.9, "own": 0.9},
    "vllm": {"equal": 1.2, "own": 1.2},
    "vllm_all_cores": {"equal": 1.2, "own": 1.2},
}
# The largest ratio of the time to the first token beside long streams to that on an idle server,
# and of the 99th percentile of the time between tokens to the median.
FIRST_TOKEN_TARGET, GAP_TARGET = 3.0, 5.0


class Measured(Protocol):
    """A contender with its results; see `session.Entry`."""

    contender: GenerationContender
    turns: list[Turn]
    failure: str | None


@dataclass(frozen=True)
class Line:
    """A contender with a setting.

    Attributes:
        tokens_per_second: the median over the rounds.
        kit_ratio: tokens per second of this kit to those of the contender, in the same rounds.
        target: the least ratio that the project promises.
    """

    contender: str
    precision: str
    setting: str
    tokens_per_second: float
    kit_ratio: Ratio | None
    target: float | None


def summary(entries: Sequence[Measured]) -> dict[str, Any]:
    """Return the lines, the medians of the latencies, the worst hang-ups, and all results."""
    done = [entry for entry in entries if entry.turns and not entry.failure]
    turns = [turn for entry in done for turn in entry.turns]
    latencies = [turn.latency for turn in turns if turn.latency]
    hang_ups = [turn.hang_ups for turn in turns if turn.hang_ups]
    return {
        "lines": [asdict(line) for line in lines(done)],
        "latency": asdict(_middle(latencies)) if latencies else None,
        "hang_ups": asdict(_worst(hang_ups)) if hang_ups else None,
        "contenders": {entry.contender.name: _record(entry) for entry in entries},
    }


def lines(done: Sequence[Measured]) -> list[Line]:
    """Return the lines of contenders that did not fail, in order."""
    kit = next((entry for entry in done if entry.contender.name == KIT), None)
    return [_line(entry, setting, kit) for setting in SETTINGS for entry in done]


def _line(entry: Measured, setting: str, kit: Measured | None) -> Line:
    name, speeds = entry.contender.name, _speeds(entry, setting)
    is_compared = kit is not None and kit is not entry
    ratio = Ratio.of(_speeds(kit, setting), speeds) if kit and is_compared else None
    target = TARGETS.get(name, {}).get(setting)
    return Line(name, entry.contender.precision, setting, median(speeds), ratio, target)


def _speeds(entry: Measured, setting: str) -> list[float]:
    return [turn.speeds[setting].tokens_per_second for turn in entry.turns]


def _middle(found: Sequence[Latency]) -> Latency:
    names = Latency.__dataclass_fields__
    return Latency(**{name: median(getattr(each, name) for each in found) for name in names})


def _worst(found: Sequence[HangUps]) -> HangUps:
    """Return the hang-ups of the round in which the worker's memory grew most."""
    return max(found, key=lambda each: each.bytes_after - each.bytes_before)


def _record(entry: Measured) -> dict[str, Any]:
    return {
        "precision": entry.contender.precision,
        "failure": entry.failure,
        "turns": [asdict(turn) for turn in entry.turns],
    }
