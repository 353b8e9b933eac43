"""The table, the plot and the recommendation."""

from __future__ import annotations

from io import StringIO
from typing import Any
from xml.etree import ElementTree as ET

from rich.console import Console

from hf_serve.scripts.benchmark.candidates import Candidate
from hf_serve.scripts.benchmark.report import describe, plot, recommended, table
from hf_serve.scripts.benchmark.session import Measured

FIGURES: dict[str, Any] = {
    "batch": 16,
    "tokens_per_second": None,
    "p50_ms": 4.0,
    "p99_ms": 9.0,
    "bytes": 500_000_000,
    "size": 1_000_000,
    "refused": 0,
    "fidelity": None,
}
LOSSY = {"rows": 10, "decisions": 10, "label_agreement": 0.995, "largest_score_difference": 0.1}


def measured(save_mode: str, speed: float, **figures: Any) -> Measured:
    candidate = Candidate({"save_mode": save_mode, "dtype": "float32"})
    return Measured(candidate, {**FIGURES, "rows_per_second": speed, **figures})


def shown(*found: Measured) -> list[list[str]]:
    console = Console(file=StringIO(), width=200)
    console.print(table(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.split() for line in text.splitlines()]


FAILED = Measured(
    Candidate({"save_mode": "onnx", "dtype": "float32"}), problem="it does not export"
)


def test_a_line_has_the_speed_of_a_format_and_the_ratio_to_the_first() -> None:
    head, first, second = shown(
        measured("pretrained", 10), FAILED, measured("openvino", 25, fidelity=LOSSY)
    )
    assert head[1] == "rows/s"
    assert first[:4] == ["pretrained,", "float32", "10", "1.00"]
    assert second[:4] == ["openvino,", "float32", "25", "2.50"]
    assert (first[-1], second[-1]) == ("exact", "99.5%")


def test_a_model_that_generates_has_tokens_per_second() -> None:
    head, line = shown(measured("pretrained", 10, tokens_per_second=320.0))
    assert (head[1], line[2]) == ("tokens/s", "320")


def test_the_fastest_is_recommended() -> None:
    found = [measured("pretrained", 10), FAILED, measured("openvino", 25)]
    best = recommended(found)
    assert best is found[2]
    assert "2.5 times" in describe(best, found)


def test_a_little_speed_does_not_outweigh_an_exact_format() -> None:
    found = [measured("pretrained", 10), measured("openvino", 10.4, fidelity=LOSSY)]
    assert recommended(found) is found[0]
    assert recommended([FAILED]) is None


def test_the_plot_has_a_bar_for_each_format() -> None:
    found = [measured("pretrained", 10), FAILED, measured("openvino", 25, fidelity=LOSSY)]
    root = ET.fromstring(plot("<mine>", found))  # noqa: S314 - made here
    texts = [each.text or "" for each in root.iter() if each.tag.endswith("text")]
    widths = [float(each.attrib["width"]) for each in root.iter() if each.tag.endswith("rect")][1:]
    assert texts[0].startswith("<mine>")
    assert texts[-1] == "25, 99.5%"
    assert widths[1] == 2.5 * widths[0]
