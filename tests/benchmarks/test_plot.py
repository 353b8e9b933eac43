from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.plot import bars, curve

SVG = "{http://www.w3.org/2000/svg}"


def result(*speeds: float) -> dict[str, Any]:
    return {"turns": [{"loads": {"32": {"rows_per_second": speed}}} for speed in speeds]}


def line(name: str, clients: int, speed: float) -> dict[str, Any]:
    return {"contender": name, "clients": clients, "rows_per_second": speed}


DOCUMENT: dict[str, Any] = {
    "modes": {
        "sequence_classification": {
            "lines": [line("kit", 1, 5.0), line("kit", 32, 200.0), line("reference", 32, 50.0)],
            "contenders": {"kit": result(180.0, 200.0, 260.0), "reference": result(50.0)},
        }
    },
}
SCALING = [
    {"tokens": 30.0, "rows_per_second": 80.0},
    {"tokens": 60.0, "rows_per_second": 40.0},
    {"tokens": 120.0, "rows_per_second": 10.0},
]


def shapes(picture: str, kind: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own picture
    return [each.attrib for each in root.iter(f"{SVG}{kind}")]


def points(polyline: dict[str, str]) -> list[tuple[float, ...]]:
    return [tuple(map(float, point.split(","))) for point in polyline["points"].split()]


def test_bar_lengths_are_proportional_to_throughput_with_the_most_clients() -> None:
    _, kit, reference = shapes(bars(DOCUMENT), "rect")
    assert float(kit["width"]) == pytest.approx(4 * float(reference["width"]), rel=0.01)


def test_the_range_of_the_rounds_is_drawn_over_the_bar() -> None:
    _, kit, _ = shapes(bars(DOCUMENT), "rect")
    (low, _), (high, _) = points(shapes(bars(DOCUMENT), "polyline")[0])
    scale = float(kit["width"]) / 200
    assert low == pytest.approx(float(kit["x"]) + 180 * scale, abs=0.2)
    assert high == pytest.approx(float(kit["x"]) + 260 * scale, abs=0.2)


def test_linear_cost_is_on_the_dashed_line_and_superlinear_cost_below_it() -> None:
    linear, measured = map(points, shapes(curve(SCALING), "polyline"))
    assert measured[:2] == linear[:2]
    assert measured[2][0] == linear[2][0]
    assert measured[2][1] > linear[2][1]  # SVG counts from the top


def test_a_mode_without_results_is_still_plotted() -> None:
    nothing: dict[str, Any] = {"modes": {"token_classification": {"lines": [], "contenders": {}}}}
    assert len(shapes(bars(nothing), "rect")) == 1
