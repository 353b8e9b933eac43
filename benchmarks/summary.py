"""Summarize the rounds in a line for each contender and number of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.entry import Entry
from benchmarks.ratio import Ratio

BASELINES = ("reference", "litserve")


@dataclass(frozen=True)
class Line:
    """A contender at a number of clients; latencies and throughput are medians over the rounds.

    Attributes:
        against: ratio of the throughput to that of each baseline, by name.
        share_of_engine: ratio of the throughput to that of the engine in the same round; only for
            the most clients, because the engine runs full batches.
        over_engine_ms: latency added to that of the engine; only for one client.
        share_of_peak: the fraction of the machine's peak speed used to compute real tokens.
    """

    contender: str
    precision: str
    clients: int
    rows_per_second: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    errors: int
    against: dict[str, Ratio]
    share_of_engine: Ratio | None
    over_engine_ms: float | None
    share_of_peak: float | None


def lines(entries: Sequence[Entry], flops_per_row: float, peaks: Mapping[str, float]) -> list[Line]:
    """Return the lines of the contenders that did not fail, in order."""
    done = [entry for entry in entries if entry.measurements and not entry.failure]
    bases = {each.contender.name: each for each in done if each.contender.name in BASELINES}
    return [
        _line(entry, clients, bases, flops_per_row, peaks)
        for entry in done
        for clients in entry.measurements[0].loads
    ]


def starts(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return archive, startup and engine figures of the contenders, as medians over the rounds."""
    return [_start(entry) for entry in entries if entry.measurements and not entry.failure]


def _start(entry: Entry) -> dict[str, Any]:
    engines = [each.engine for each in entry.measurements if each.engine]
    return {
        "contender": entry.contender.name,
        "archive_seconds": entry.archive.seconds if entry.archive else None,
        "archive_bytes": entry.archive.size if entry.archive else None,
        "first_answer_seconds": median(each.first_answer_seconds for each in entry.measurements),
        "worker_bytes": median(each.worker_bytes for each in entry.measurements),
        "engine_rows_per_second": _middle([each.rows_per_second for each in engines]),
        "engine_p50_ms": _middle([each.p50_ms for each in engines]),
        "engine_padding_share": _middle([each.padding_share for each in engines]),
    }


def record(entry: Entry) -> dict[str, Any]:
    """Return all measurements of a contender."""
    return {
        "precision": entry.contender.precision,
        "failure": entry.failure,
        "turns": [asdict(each) for each in entry.measurements],
    }


def _line(
    entry: Entry,
    clients: int,
    bases: Mapping[str, Entry],
    flops_per_row: float,
    peaks: Mapping[str, float],
) -> Line:
    loads = [each.loads[clients] for each in entry.measurements]
    speeds = _speeds(entry, clients)
    engines = [each.engine for each in entry.measurements if each.engine]
    full = bool(engines) and clients == max(entry.measurements[0].loads)
    ceiling = Ratio.of(speeds, [each.rows_per_second for each in engines]) if full else None
    longer = [one.p50_ms - other.p50_ms for one, other in zip(loads, engines, strict=False)]
    peak = peaks.get(entry.contender.precision)
    return Line(
        contender=entry.contender.name,
        precision=entry.contender.precision,
        clients=clients,
        rows_per_second=median(speeds),
        p50_ms=median(each.p50_ms for each in loads),
        p90_ms=median(each.p90_ms for each in loads),
        p99_ms=median(each.p99_ms for each in loads),
        errors=sum(each.errors for each in loads),
        against={
            name: Ratio.of(speeds, _speeds(base, clients))
            for name, base in bases.items()
            if base is not entry
        },
        share_of_engine=ceiling,
        over_engine_ms=median(longer) if longer and clients == 1 else None,
        share_of_peak=median(speeds) * flops_per_row / (peak * 1e12) if peak else None,
    )


def _speeds(entry: Entry, clients: int) -> list[float]:
    return [each.loads[clients].rows_per_second for each in entry.measurements]


def _middle(figures: Sequence[float]) -> float | None:
    return median(figures) if figures else None
