"""Measures another library's pairs/s in process; run by the Python of its environment.

Reads a job from standard input, and prints its pairs/s: `library`, `model`, `queries` and
`seconds`. It imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from typing import Any

BATCH = 32

Pairs = list[tuple[str, str]]
Rank = Callable[[Pairs], Any]
# The number of texts that the library calibrates with by default.
CALIBRATION_TEXTS = 300


def main() -> None:
    """Measure the library of the job."""
    job = json.load(sys.stdin)
    pairs = [(query, text) for query, texts in job["queries"] for text in texts]
    rank = LIBRARIES[job["library"]](job["model"], pairs)
    rank(pairs[:BATCH])
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < job["seconds"] or not count:
        rank(pairs)
        count += len(pairs)
    sys.stdout.write(f"\n{json.dumps(count / elapsed if elapsed else 0)}\n")


def sentence_transformers(model: str, **options: Any) -> Rank:
    """Return the ranking of sentence-transformers, in batches sorted by length."""
    library = import_module("sentence_transformers")
    encoder = library.CrossEncoder(model, **options)
    return lambda pairs: encoder.predict(pairs, batch_size=BATCH, show_progress_bar=False)


def openvino_int8(model: str, pairs: Pairs) -> Rank:
    """Return the ranking of a model that the library exports and quantizes with these pairs."""
    file = "openvino/openvino_model_qint8_quantized.xml"
    if not (Path(model) / file).is_file():
        _quantize(model, pairs)
    name = {"file_name": file}
    return sentence_transformers(model, backend="openvino", device="cpu", model_kwargs=name)


def _quantize(model: str, pairs: Pairs) -> None:
    library = import_module("sentence_transformers")
    backend = import_module("sentence_transformers.backend")
    encoder = library.CrossEncoder(model, backend="openvino", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        texts = islice(cycle(" ".join(pair) for pair in pairs), CALIBRATION_TEXTS)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (Path(folder) / "train.jsonl").write_text(lines, encoding="utf-8")
        backend.export_static_quantized_openvino_model(
            encoder,
            None,
            model,
            dataset_name=folder,
            dataset_config_name="default",
            dataset_split="train",
            column_name="text",
        )


def flash(model: str, _pairs: Pairs) -> Rank:
    """Return the ranking on a GPU with flash attention."""
    options = {"attn_implementation": "flash_attention_2", "dtype": "bfloat16"}
    return sentence_transformers(model, device="cuda", model_kwargs=options)


def vllm(model: str, _pairs: Pairs) -> Rank:
    """Return the ranking of vLLM."""
    engine = import_module("vllm").LLM(model, runner="pooling", dtype="bfloat16")
    return lambda pairs: engine.score([each[0] for each in pairs], [each[1] for each in pairs])


LIBRARIES: dict[str, Callable[[str, Pairs], Rank]] = {
    "sentence_transformers": lambda model, _pairs: sentence_transformers(model, device="cpu"),
    "sentence_transformers_openvino_int8": openvino_int8,
    "sentence_transformers_flash": flash,
    "vllm": vllm,
}

if __name__ == "__main__":
    main()
