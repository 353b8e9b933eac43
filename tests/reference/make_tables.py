"""Ask the table-question-answering pipeline of transformers 4 and write its answers to a file.

    pip install torch 'transformers<5' 'pandas<3' safetensors numpy pydantic pyyaml
    python tests/reference/make_tables.py

Writes tables.jsonl. The inputs are copied, because the pipeline changes them.
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import torch
import transformers

if not hasattr(transformers, "PreTrainedConfig"):  # its name in transformers 5
    transformers.PreTrainedConfig = transformers.PretrainedConfig

from tests.reference.tables import CASES, KINDS, write
from tests.tiny import digest


def main() -> None:
    """Write the data file."""
    assert transformers.__version__.startswith("4."), "transformers 4 is the reference"
    transformers.logging.set_verbosity_error()
    torch.use_deterministic_algorithms(True)
    lines = (json.dumps(_part(kind), ensure_ascii=False) + "\n" for kind in KINDS)
    (HERE / "tables.jsonl").write_text("".join(lines), encoding="utf-8")
    sys.stdout.write(f"{len(CASES)} tables of transformers {transformers.__version__}\n")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        pipeline = transformers.pipeline(
            "table-question-answering", model=str(folder), device="cpu"
        )
        answers = [pipeline(copy.deepcopy(inputs), **given) for inputs, given in CASES]
        return {"checkpoint": kind, "digest": digest(folder), "answers": answers}


if __name__ == "__main__":
    main()
