"""Measures this kit's pairs/s in process; a process of its own, as other libraries have.

Reads a job from standard input, and prints its pairs/s: `handler`, `queries`, `seconds` and `work`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.reranking.models import Query
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.process.packages import silence_libraries
from hf_serve.handlers.process.resources import limit_memory_growth
from hf_serve.handlers.types.request import Request
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.packing import pack

MODE = "sentence_ranking"
TEXTS = {"max_rows": 1024, "max_characters": 1_000_000}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "kit_float32": {"dtype": "float32"},
    "kit_bfloat16": {"dtype": "bfloat16", "min_agreement": 0},
    "kit_openvino": {"save_mode": "openvino", "dtype": "float32"},
    "kit_openvino_bfloat16": {"save_mode": "openvino", "dtype": "bfloat16", "min_agreement": 0},
    # What is left in floating point has the fastest type of the processor.
    "kit_openvino_int8": {
        "save_mode": "openvino",
        "quantization": "int8",
        "dtype": "auto",
        "min_agreement": 0,
    },
}


def main() -> None:
    """Measure the format of the job."""
    silence_libraries()
    # As a worker does.
    limit_memory_growth()
    job = json.load(sys.stdin)
    engine = _load(job["name"], Path(job["model"]), Path(job["work"]))
    _rank(engine, job["queries"][:1])
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < job["seconds"] or not count:
        count += _rank(engine, job["queries"])
    sys.stdout.write(f"\n{json.dumps(count / elapsed)}\n")


def _load(name: str, model: Path, work: Path) -> Engine:
    """Load the checkpoint, or the archive of an exported format."""
    handler = {"mode": MODE, "model_name": str(model), **TEXTS, **SETTINGS[name]}
    config = ModelConfig.parse({"handler": handler})
    if "save_mode" not in handler:
        return Engine.load(model, config)
    folder = work / "archives" / f"{model.name}_{name}"
    if not folder.is_dir():
        source = work / "configs" / f"{model.name}_{name}.yaml"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(yaml.safe_dump({"handler": handler}), encoding="utf-8")
        archive = pack(source, export_path=source.parent, checked=False).path
        ARCHIVE_FORMATS["mar"].unpack(archive, folder)
    return Engine.load(folder, config)


def _rank(engine: Engine, queries: Sequence[Query]) -> int:
    """Rank the texts of all queries together; returns the number of pairs."""
    requests = [Request({"query": query, "texts": texts}) for query, texts in queries]
    for outcome in engine.predict(requests):
        if isinstance(outcome, Exception):
            raise outcome
    return sum(len(texts) for _, texts in queries)


if __name__ == "__main__":
    main()
