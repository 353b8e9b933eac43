"""Compare the formats of a fine-tuned bert-base classifier: rows per second, size and agreement.

    python benchmarks/formats.py

Measured in process on seeded texts of mixed length, including tokenization, alternating between the
formats for several rounds. Agreement with the float32 checkpoint is measured on held-out rows.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.fine_tuned import fine_tuned_bert_base
from benchmarks.machine import machine
from benchmarks.texts import mixed_texts
from hf_serve.demo_models.synthetic_text.sentiment import reviews
from hf_serve.handlers.batching.rows import Outputs
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.export.fidelity import compare_outputs
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD

MODE = "sequence_classification"
BATCH, TEXTS, HELD_OUT = 32, 96, 500
RESULTS = ROOT / "benchmarks" / "results" / "formats.json"
CONTENDERS: dict[str, dict[str, Any]] = {
    "pretrained, padded": {"BetterTransformer": False},
    "pretrained, packed": {},
    "pretrained, dtype auto": {"dtype": "auto"},
    "torchscript": {"save_mode": "torchscript"},
    "torch_export": {"save_mode": "torch_export"},
    "onnx": {"save_mode": "onnx"},
    "openvino": {"save_mode": "openvino"},
    "openvino, dtype auto": {"save_mode": "openvino", "dtype": "auto"},
    "openvino, int8_weights": {"save_mode": "openvino", "quantization": "int8_weights"},
    "openvino, int4_weights": {"save_mode": "openvino", "quantization": "int4_weights"},
    # With an accuracy target, the first layers stay in floating point if required.
    "openvino, int8": {"save_mode": "openvino", "quantization": "int8", "min_agreement": 0.5},
}


@dataclass
class Contender:
    """A format with its measurements."""

    engine: Engine
    size: int
    speeds: list[float]


def prepare(name: str, handler: dict[str, Any], folder: Path) -> Contender:
    """Pack the model in a format, unpack the archive and load it."""
    stem = "bench_" + "".join(letter if letter.isalnum() else "_" for letter in name)
    path = BUILD / "benchmarks" / f"{stem}.yaml"
    section = {"mode": MODE, "model_name": str(folder), "min_agreement": 0, **handler}
    path.write_text(json.dumps({"batchSize": BATCH, "handler": section}), encoding="utf-8")
    archive = pack(path, export_path=BUILD / "benchmarks" / "model_store", checked=False)
    unpacked = BUILD / "benchmarks" / "unpacked" / stem
    unpacked = ARCHIVE_FORMATS["mar"].unpack(archive.path, unpacked)
    return Contender(Engine.load(unpacked, ModelConfig.read(path)), archive.size, [])


def speed(engine: Engine, texts: list[str]) -> float:
    """Return texts per second, in batches."""
    start = time.perf_counter()
    for first in range(0, len(texts), BATCH):
        engine.predict([Request(text) for text in texts[first : first + BATCH]])
    return len(texts) / (time.perf_counter() - start)


def outputs(engine: Engine, texts: list[str]) -> list[Outputs]:
    """Return the logits of each text."""
    task = engine.task
    queries = [task.parse(Request(text)) for text in texts]
    rows = [row for encoded in task.encode(queries) for row in encoded]
    return list(task.run(engine.model, rows, Meter()))


def main(rounds: int = 3) -> None:
    """Measure, print and write `benchmarks/results/formats.json`."""
    folder = fine_tuned_bert_base()
    contenders = {name: prepare(name, keys, folder) for name, keys in CONTENDERS.items()}
    first = next(iter(contenders.values()))
    texts = mixed_texts(first.engine.task.checkpoint.tokenizer, TEXTS)
    held_out = [review.text for review in reviews("held_out", HELD_OUT, 7)]
    exact = outputs(first.engine, held_out)
    agreements = {}
    for name, contender in contenders.items():
        agreements[name] = compare_outputs(exact, outputs(contender.engine, held_out))
        speed(contender.engine, texts)
    for _ in range(rounds):
        for contender in contenders.values():
            contender.speeds.append(speed(contender.engine, texts))
    report(contenders, agreements)


def report(contenders: dict[str, Contender], agreements: dict[str, FidelityReport]) -> None:
    """Print the table and write the results."""
    columns = ("format", "rows/s", "ratio", "agreement", "largest score difference", "MB")
    table, lines = Table(*columns), []
    first = next(iter(contenders.values()))
    for name, each in contenders.items():
        found = agreements[name]
        ratios = [mine / base for mine, base in zip(each.speeds, first.speeds, strict=True)]
        line = {
            "format": name,
            "rows_per_second": statistics.median(each.speeds),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "label_agreement": found.label_agreement,
            "largest_score_difference": found.largest_score_difference,
            "archive_bytes": each.size,
        }
        lines.append(line)
        table.add_row(
            name,
            f"{line['rows_per_second']:.1f}",
            f"{line['ratio']:.2f}",
            f"{found.label_agreement:.2%}",
            f"{found.largest_score_difference:.4f}",
            f"{each.size / 1e6:.0f}",
        )
    Console().print(table)
    document = {"machine": machine(), "batch": BATCH, "texts": TEXTS, "formats": lines}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
