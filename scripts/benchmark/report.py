"""Show the figures of formats: a table, a plot, and the format that is recommended."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from rich.filesize import decimal
from rich.table import Column, Table

from hf_serve.scripts.benchmark.session import Figures, Measured

# A format that is faster by less is not recommended instead of a more exact one.
NOTABLE = 1.05
WIDTH, LEFT, RIGHT, BAR, GAP = 720, 250, 210, 20, 8
COLOURS = {"fast": "#2166ac", "other": "#8fa3b8", "ink": "#1f2328"}


def table(found: Sequence[Measured]) -> Table:
    """Return the figures of each format in a line."""
    first = next((each.figures for each in found if each.figures), None)
    unit = "tokens/s" if first and first["tokens_per_second"] else "rows/s"
    right = [
        Column(name, justify="right")
        for name in (unit, "ratio", "p50 ms", "p99 ms", "memory", "archive")
    ]
    made = Table(Column("format", no_wrap=True), *right, "fidelity", box=None, pad_edge=False)
    for each in found:
        if each.figures and first:
            ratio = each.figures["rows_per_second"] / first["rows_per_second"]
            made.add_row(each.candidate.name, *_cells(each.figures, ratio), fidelity_of(each))
    return made


def fidelity_of(measured: Measured) -> str:
    """Return how closely a format has the answers of the checkpoint in float32."""
    report = measured.fidelity
    if report is None:
        return "exact"
    texts = f", {report.generated.token_agreement:.1%} of tokens" if report.generated else ""
    vectors = "cosine and ranks " if report.vectors else ""
    return f"{vectors}{report.agreement:.1%}{texts}"


def recommended(found: Sequence[Measured]) -> Measured | None:
    """Return the fastest format; an earlier one, which is more exact, if it is almost as fast."""
    measured = [each for each in found if each.figures]
    fastest = max(map(_speed, measured), default=0.0)
    return next((each for each in measured if _speed(each) * NOTABLE >= fastest), None)


def describe(best: Measured, found: Sequence[Measured]) -> str:
    """Return why a format is recommended, before its lines of the YAML."""
    first = next(each for each in found if each.figures)
    if best is first:
        return f"{best.candidate.name} is recommended: no other format is faster by 5%."
    ratio = _speed(best) / _speed(first)
    return (
        f"{best.candidate.name} is recommended: it is {ratio:.1f} times as fast as"
        f" {first.candidate.name}. In the YAML:"
    )


def plot(name: str, found: Sequence[Measured]) -> str:
    """Return the speeds as a bar chart in SVG."""
    measured = [each for each in found if each.figures]
    fastest, best = max(map(_speed, measured), default=1.0), recommended(found)
    shapes, top = [_text(10, 24, f"{name}: rows per second")], 44
    for each in measured:
        length = (WIDTH - LEFT - RIGHT) * _speed(each) / fastest
        colour = COLOURS["fast" if each is best else "other"]
        shapes += [
            _text(10, top + 15, each.candidate.name),
            f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            _text(LEFT + length + 8, top + 15, f"{_speed(each):.4g}, {fidelity_of(each)}"),
        ]
        top += BAR + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 10}">'
    ground = f'<rect width="{WIDTH}" height="{top + 10}" fill="white"/>'
    return "\n".join([head, ground, *shapes, "</svg>", ""])


def _cells(figures: Figures, ratio: float) -> list[str]:
    speed = figures["tokens_per_second"] or figures["rows_per_second"]
    return [
        f"{speed:.4g}",
        f"{ratio:.2f}",
        f"{figures['p50_ms']:.1f}",
        f"{figures['p99_ms']:.1f}",
        decimal(figures["bytes"]),
        decimal(figures["size"]),
    ]


def _speed(measured: Measured) -> float:
    return float(measured.figures["rows_per_second"]) if measured.figures else 0.0


def _text(x: float, y: float, text: str) -> str:
    font = 'font-family="sans-serif" font-size="13"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {font} fill="{COLOURS["ink"]}">{escape(text)}</text>'
