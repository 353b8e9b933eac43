"""Plot the results as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, BAR, GAP = 820, 250, 18, 8
COLOURS = {"kit": "#2166ac", "other": "#b2182b", "line": "#333333", "faint": "#bbbbbb"}
FONT = 'font-family="sans-serif" font-size="13"'


def bars(document: Mapping[str, Any]) -> str:
    """Return a bar chart of throughput with the most clients, with the range over the rounds."""
    shapes, top = (
        [
            _text(
                10,
                24,
                "rows per second with the most clients; lines: minimum and maximum of the rounds",
            )
        ],
        44,
    )
    for mode, found in document["modes"].items():
        shapes.append(_text(10, top + BAR, mode.replace("_", " ")))
        top += BAR + 2 * GAP
        spreads = _spreads(found)
        largest = max((most for _, _, most in spreads.values()), default=1.0)
        for name, spread in spreads.items():
            shapes += _bar(name, spread, (WIDTH - LEFT - 90) / largest, top)
            top += BAR + GAP
        top += GAP
    return _picture(shapes, top)


def curve(lines: Sequence[Mapping[str, float]]) -> str:
    """Return a log-log plot of throughput over row length; linear cost is a straight line."""
    points = [(line["tokens"], line["rows_per_second"]) for line in lines]
    first = points[0]
    linear = [(tokens, first[1] * first[0] / tokens) for tokens, _ in points]
    place = _scale([*points, *linear])
    shapes = [
        _text(10, 24, "rows per second over tokens per row; dashed: linear cost"),
        _path([place(*each) for each in linear], COLOURS["faint"], "6 4"),
        _path([place(*each) for each in points], COLOURS["kit"]),
    ]
    for tokens, rows in points:
        x, y = place(tokens, rows)
        shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS["kit"]}"/>')
        shapes.append(_text(x + 8, y - 8, f"{rows:.1f} rows/s at {tokens:.0f} tokens"))
    return _picture(shapes, 380)


def _spreads(found: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Return minimum, median and maximum rows per second by contender."""
    most = max((line["clients"] for line in found["lines"]), default=0)
    spreads = {}
    for line in found["lines"]:
        if line["clients"] == most:
            rounds = found["contenders"][line["contender"]]["turns"]
            speeds = [each["loads"][str(most)]["rows_per_second"] for each in rounds]
            spreads[line["contender"]] = min(speeds), line["rows_per_second"], max(speeds)
    return spreads


def _bar(name: str, spread: tuple[float, float, float], scale: float, top: int) -> list[str]:
    low, middle, high = (LEFT + scale * speed for speed in spread)
    colour, centre = COLOURS["kit" if name.startswith("kit") else "other"], top + BAR / 2
    return [
        _text(24, top + BAR - 5, name),
        f'<rect x="{LEFT}" y="{top}" width="{middle - LEFT:.1f}" height="{BAR}" fill="{colour}"/>',
        _path([(low, centre), (high, centre)], COLOURS["line"]),
        _text(max(middle, high) + 8, top + BAR - 5, f"{spread[1]:.1f}"),
    ]


def _scale(points: Sequence[tuple[float, float]]) -> Any:
    """Return a function that maps tokens and rows per second to plot coordinates."""
    tokens, rows = ([math.log(each) for each in axis] for axis in zip(*points, strict=True))
    wide, tall = (max(axis) - min(axis) or 1.0 for axis in (tokens, rows))

    def place(x: float, y: float) -> tuple[float, float]:
        right = 40 + (math.log(x) - min(tokens)) / wide * (WIDTH - 300)
        return right, 350 - (math.log(y) - min(rows)) / tall * 270

    return place


def _path(points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"'
        f' stroke-dasharray="{dashes or "none"}"/>'
    )


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {FONT} fill="{COLOURS["line"]}">{escape(text)}</text>'


def _picture(shapes: Sequence[str], height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *shapes, "</svg>", ""])
