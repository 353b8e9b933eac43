"""Measure sentence-transformers in process, in the environment of infinity, which has it.

Run as a program, it reads a job as JSON from stdin and prints the rows/s as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

BATCH = 32


def main() -> None:
    """Run the job from stdin."""
    job = json.load(sys.stdin)
    model, texts = load(job["model"], job["backend"]), job["texts"]
    encode(model, texts)
    rows, start = 0, time.perf_counter()
    while time.perf_counter() - start < job["seconds"]:
        encode(model, texts)
        rows += len(texts)
    print(json.dumps(rows / (time.perf_counter() - start)))


def load(folder: str, backend: str) -> Any:
    """Load a checkpoint, exporting it first where the backend needs that."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    return SentenceTransformer(folder, device="cpu", backend=backend)


def encode(model: Any, texts: list[str]) -> None:
    """Compute the vectors of the texts, sorted by length as the library does."""
    model.encode(texts, batch_size=BATCH, show_progress_bar=False)


if __name__ == "__main__":
    main()
