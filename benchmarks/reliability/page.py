"""The table of a run, in `docs/reliability.md`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.table import markdown
from hf_serve.scripts.installation import ROOT

PAGE = ROOT / "docs" / "reliability.md"
MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- /measured -->)", re.DOTALL)


def write_page(document: Mapping[str, Any], *, write: bool) -> str:
    """Return what was measured as Markdown, and put it into the page if asked to."""
    text = measured(document)
    if write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(MEASURED.sub(lambda found: found[1] + text + found[2], page), "utf-8")
    return text


def measured(document: Mapping[str, Any]) -> str:
    """Return the machine, the table of faults, liveness and memory."""
    computer, live, memory = (document[key] for key in ("machine", "liveness_ms", "memory_mib"))
    head = ["fault", "200", "refused or failed", "without answer", "of another", "normal after", ""]
    return "\n\n".join(
        [
            f"{document['seconds']} s on {computer['cores']} cores of {computer['processor']}"
            f" (load average {computer['load']}).",
            markdown(head, [_cells(row) for row in document["rows"]]),
            f"`/ping` during the overload: p50 {live['p50']} ms, p99 {live['p99']} ms, at most"
            f" {live['max']} ms. Resident memory of all processes: {memory['first']:,.0f} MiB after"
            f" a sixth of the run, {memory['last']:,.0f} MiB at its end"
            f" ({memory['growth']:+.1%}).\n",
        ]
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    if row["skipped"]:
        return [row["what"], *["–"] * 5, f"not tried: {row['skipped']}"]
    statuses = {int(status): count for status, count in row["statuses"].items()}
    others = {status: count for status, count in sorted(statuses.items()) if status not in (0, 200)}
    refused = ", ".join(f"{count} × {status}" for status, count in others.items()) or "0"
    slowest = row["slowest_refusal"]
    notes = [row["note"], f"503 within {slowest:g} s" if slowest is not None else ""]
    notes += [] if row["passes"] else ["**not kept**"]
    return [
        row["what"],
        str(statuses.get(200, 0)),
        refused,
        str(statuses.get(0, 0)),
        str(row["wrong"]),
        "never" if row["seconds"] is None else f"{row['seconds']:g} s",
        "; ".join(filter(None, notes)),
    ]
