"""The plot of the README: rows a second of this kit, LitServe and the reference on two machines.

python benchmarks/overview.py    writes docs/images/speed.svg from benchmarks/results/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

RESULTS = Path(__file__).resolve().parent / "results"
PLOT = RESULTS.parents[1] / "docs" / "images" / "speed.svg"
NAMES = {
    "reference": "old TorchServe example",
    "litserve": "LitServe",
    "kit": "this kit",
    "kit_openvino": "this kit, OpenVINO",
    "kit_openvino_int8": "this kit, OpenVINO int8",
}
WIDTH, LEFT, RIGHT, BAR, GAP = 550, 260, 50, 22, 8
# A picture in a page follows the system's colours; the site sets its own for its palette toggle.
STYLE = """\
svg.drawing { --ink: #1f2328; --faint: #59636e; --accent: #2f6fb3; --other: #a9b4c0; }
@media (prefers-color-scheme: dark) {
  svg.drawing { --ink: #e6edf3; --faint: #9aa5b1; --accent: #6cb0f5; --other: #66707c; }
}
.drawing text { font-family: system-ui, sans-serif; font-size: 15px; fill: var(--ink); }
.drawing .faint { fill: var(--faint); }
.drawing .title { font-weight: 600; }
.drawing .kit { fill: var(--accent); }
.drawing .other { fill: var(--other); }"""

Speeds = Mapping[str, tuple[str, float]]


def main() -> None:
    """Write the plot."""
    PLOT.write_text(plot(), encoding="utf-8")


def plot() -> str:
    """Return the plot of the results that are stored now, as SVG."""
    panels = [
        ("2 cores, Intel Xeon with AMX", _measured_with_amx()),
        ("2 cores, AMD EPYC with AVX2", _measured_by_rounds()),
    ]
    shapes, top = [], 8
    for title, speeds in panels:
        shapes.append(_text(0, top + 16, title, "title"))
        top += 30
        largest = max(speed for _, speed in speeds.values())
        for name, (precision, speed) in speeds.items():
            shapes += _bar(name, precision, speed, (WIDTH - LEFT - RIGHT) / largest, top)
            top += BAR + GAP
        top += 14
    shapes.append(
        _text(0, top + 10, "rows per second, 32 clients, sequence classification", "faint")
    )
    size = f'viewBox="0 0 {WIDTH} {top + 18}" width="{WIDTH}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" {size}>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", *shapes, "</svg>", ""])


def _measured_with_amx() -> Speeds:
    found = _read("serving_amx.json")["rows_per_second"]
    return {name: (found[name]["precision"], found[name]["rows_per_second"]) for name in NAMES}


def _measured_by_rounds() -> Speeds:
    lines = _read("serving.json")["modes"]["sequence_classification"]["lines"]
    most = {line["contender"]: line for line in lines if line["clients"] == 32}
    return {name: (most[name]["precision"], most[name]["rows_per_second"]) for name in NAMES}


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return document


def _bar(name: str, precision: str, speed: float, scale: float, top: int) -> list[str]:
    kind, base = "kit" if name.startswith("kit") else "other", top + BAR - 6
    shown = "" if precision == "int8" else f", {precision}"
    figure = f"{speed:.0f}" if speed >= 40 else f"{speed:.1f}"
    return [
        _text(0, base, NAMES[name] + shown),
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{speed * scale:.1f}" height="{BAR}"'
        ' rx="2"/>',
        _text(LEFT + speed * scale + 6, base, figure),
    ]


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>'


if __name__ == "__main__":
    main()
