"""The results of rerankers as a section of RESULTS.md."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.reranking.models import DESCRIPTIONS


def reranking_section(document: Mapping[str, Any]) -> str:
    """Return the section: pairs/s of each contender, the median of the rounds."""
    lines = ["## Rerankers", "", f"Pairs/s in process, on {document['machine']['processor']}.", ""]
    if document["tiny"]:
        lines += ["A trial run with tiny models, whose figures mean nothing.", ""]
    for name, lengths in document["models"].items():
        lines += [f"### {name}", "", DESCRIPTIONS[name], ""]
        columns = " | ".join(f"{length} tokens" for length in lengths)
        lines += [f"| Contender | {columns} |", "| --- |" + " ---: |" * len(lengths)]
        contenders = dict.fromkeys(each for found in lengths.values() for each in found)
        for contender in contenders:
            cells = [_cell(found.get(contender)) for found in lengths.values()]
            lines.append(f"| {contender} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(found: Mapping[str, Any] | None) -> str:
    if found is None or found["failure"] or not found["pairs_per_second"]:
        return "–"
    return f"{median(found['pairs_per_second']):,.0f}"
