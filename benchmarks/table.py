"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Cells = Sequence[str]


def results_page(document: Mapping[str, Any]) -> str:
    """Return the whole page: the machine, a table a mode, starts, and how cost grows."""
    parts = [_head(document)]
    for mode, found in document["modes"].items():
        parts += [f"## {mode.replace('_', ' ').capitalize()}", _rows_of(found), _speeds(found)]
        parts += [_failures(found["contenders"]), _starts(found["starts"])]
        if found["scaling"]:
            parts += ["### How cost grows", _scaling(found["scaling"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(head: Cells, rows: Sequence[Cells]) -> str:
    """Return a table; columns after the first are set to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _head(document: Mapping[str, Any]) -> str:
    machine, plan = document["machine"], document["plan"]
    peaks = ", ".join(f"{name} {peak:.3g}" for name, peak in machine["gemm_tflops"].items())
    return (
        "# What serving costs\n\n"
        "Made by `make bench`; the figures of every round are in"
        " [results/serving.json](results/serving.json). A request carries one row. Times are"
        " medians over the rounds; ratios are those of the same round, the middle one and, in"
        " brackets, the least and the most.\n\n"
        f"- Model: {document['model']}, {plan['rows']} seeded texts of mixed length.\n"
        f"- Machine: {machine['processor']}, {machine['cores']} cores"
        f" ({', '.join(machine['instructions']) or 'no vector instructions known'});"
        f" {machine['load']} processes on it before.\n"
        f"- Best matrix product in torch, TFLOP/s: {peaks}.\n"
        f"- {plan['rounds']} rounds of {plan['seconds']:g} s for each number of clients, after"
        f" {plan['warm']:g} s to warm up; closed loop, wrk on the same cores.\n"
        "- An untrained model has no labels to keep, so int8 is int8 in every layer; a trained one"
        " may keep first layers in floating point, as in the table of docs/formats.md."
    )


def _rows_of(found: Mapping[str, Any]) -> str:
    tokens = found["tokens"]
    return (
        f"Rows of {tokens['least']} to {tokens['most']} tokens, median {tokens['median']:g}, mean"
        f" {tokens['mean']:.1f}; {found['flops_per_row'] / 1e9:.3g} GFLOP a row."
    )


def _speeds(found: Mapping[str, Any]) -> str:
    head = ["server", "dtype", "clients", "rows/s", "p50 ms", "p90 ms", "p99 ms", "errors"]
    head += ["× reference", "× LitServe", "of its engine", "over its engine ms", "of the peak"]
    rows = [
        [
            line["contender"],
            line["precision"],
            str(line["clients"]),
            f"{line['rows_per_second']:.1f}",
            *(f"{line[name]:.1f}" for name in ("p50_ms", "p90_ms", "p99_ms")),
            str(line["errors"]),
            *(_ratio(line["against"].get(base)) for base in ("reference", "litserve")),
            _ratio(line["share_of_engine"]),
            _told(line["over_engine_ms"], ".1f"),
            _told(line["share_of_peak"], ".0%"),
        ]
        for line in found["lines"]
    ]
    return markdown(head, rows)


def _failures(contenders: Mapping[str, Any]) -> str:
    failed = {name: each["failure"] for name, each in contenders.items() if each["failure"]}
    return "\n".join(f"- {name} is out: {why}" for name, why in failed.items())


def _starts(starts: Sequence[Mapping[str, Any]]) -> str:
    head = ["server", "archive s", "archive MB", "first answer s", "worker MB"]
    head += ["engine rows/s", "engine p50 ms", "padding"]
    rows = [
        [
            each["contender"],
            _told(each["archive_seconds"], ".1f"),
            _told(each["archive_bytes"], ".0f", 1e-6),
            _told(each["first_answer_seconds"], ".1f"),
            _told(each["worker_bytes"], ".0f", 1e-6),
            _told(each["engine_rows_per_second"], ".1f"),
            _told(each["engine_p50_ms"], ".1f"),
            _told(each["engine_padding_share"], ".0%"),
        ]
        for each in starts
    ]
    return markdown(head, rows)


def _scaling(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{line['times']}×",
            f"{line['tokens']:.0f}",
            f"{line['rows_per_second']:.1f}",
            f"{line['tokens_per_second']:.0f}",
        ]
        for line in found
    ]
    told = "The engine of the usual YAML in process; cost is linear where tokens/s stay the same."
    return f"{told}\n\n{markdown(['length', 'tokens a row', 'rows/s', 'tokens/s'], rows)}"


def _ratio(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _told(figure: float | None, form: str, scale: float = 1.0) -> str:
    return "" if figure is None else format(scale * figure, form)
