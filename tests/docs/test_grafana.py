"""The Grafana dashboard asks for metrics that the server has."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from tests.docs.pages import DOCS

DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "torchserve.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
NAME = re.compile(r"\b(?:hf_\w+|ts_\w+|Requests\dXX|HandlerTime|QueueTime)\b")
# The metrics of TorchServe have other names of labels than those of the handler.
LABELS = {"hf_": "ModelName", "ts_": "model_name"}


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_each_panel_asks_for_metrics_that_are_documented() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    for panel in PANELS:
        for expression in expressions(panel):
            names = NAME.findall(expression)
            assert names, panel["title"]
            assert not [name for name in names if f"`{name}`" not in page], panel["title"]
            for name, label in LABELS.items():
                if names[0].startswith(name):
                    assert set(re.findall(r"(\w+)=~", expression)) == {label}, panel["title"]
                    assert f"{{{{{label}}}}}" in panel["targets"][0]["legendFormat"]


def test_counters_are_rates_and_gauges_are_not() -> None:
    for expression in (each for panel in PANELS for each in expressions(panel)):
        rates = re.findall(r"rate\((\w+)", expression)
        counters = [name for name in NAME.findall(expression) if _is_counter(name)]
        assert rates == counters


def _is_counter(name: str) -> bool:
    return name.endswith(("_total", "_microseconds", "XX", "_bucket", "_sum", "_count"))


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in PANELS]
    assert places == sorted(set(places))
    for (row, column), (next_row, next_column) in pairwise(places):
        assert next_row > row or next_column - column >= 8
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
