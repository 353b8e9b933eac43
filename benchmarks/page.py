"""Write RESULTS.md from the results of the benchmarks that have a section in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.embedding.table import embeddings_section
from benchmarks.image.table import images_section
from benchmarks.reranking.table import reranking_section
from benchmarks.table import results_page
from benchmarks.text_generation.table import generation_section

SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "serving.json": results_page,
    "generation.json": generation_section,
    "embeddings.json": embeddings_section,
    "rerank.json": reranking_section,
    "images.json": images_section,
}


def write_page(folder: Path) -> str:
    """Write RESULTS.md of a folder from the files in its results/, and return it."""
    parts = [
        section(json.loads(path.read_text(encoding="utf-8")))
        for name, section in SECTIONS.items()
        if (path := folder / "results" / name).is_file()
    ]
    page = "\n".join(parts)
    (folder / "RESULTS.md").write_text(page, encoding="utf-8")
    return page


def write_results(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """Write the results of a benchmark, and RESULTS.md with its section."""
    path = folder / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    write_page(folder)
