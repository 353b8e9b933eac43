"""Run gliner2, and write its answers to gliner2.jsonl.

    pip install torch 'gliner2[local]' pyyaml
    python tests/reference/make_gliner2.py

Writes answers of checkpoints that are the same on every machine, and checks that the package saves
them with the same files and weights.
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.reference.gliner_checkpoints import GLINER2_KINDS, digest, extractions, write

# Not in the environment in which this repository is type-checked.
gliner2: Any = import_module("gliner2")
safetensors: Any = import_module("safetensors.torch")


def main() -> None:
    """Write the data file."""
    lines = (json.dumps(_part(kind)) + "\n" for kind in GLINER2_KINDS)
    (HERE / "gliner2.jsonl").write_text("".join(lines), encoding="utf-8")


def _part(kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = write(Path(place) / kind, kind)
        model = gliner2.GLiNER2.from_pretrained(str(folder)).eval()
        saved = Path(place) / "saved"
        model.save_pretrained(str(saved))
        check_saved(folder, saved)
        answers = [
            entities(model, text, labels, settings) for text, labels, settings in extractions()
        ]
        return {"checkpoint": kind, "digest": digest(folder), "entities": answers}


def check_saved(folder: Path, saved: Path) -> None:
    """Check that a checkpoint has the files and the weights that the package saves."""
    ours, theirs = (
        {path.relative_to(place).as_posix() for path in place.rglob("*")}
        for place in (folder, saved)
    )
    weights, kept = (
        {
            name: each.shape
            for name, each in safetensors.load_file(path / "model.safetensors").items()
        }
        for path in (folder, saved)
    )
    if ours != theirs or weights != kept:
        raise SystemExit(f"not the files of the package: {ours ^ theirs} {weights.keys() ^ kept}")


def entities(
    model: Any, text: str, labels: Sequence[str] | Mapping[str, str], settings: Mapping[str, Any]
) -> list[list[Any]]:
    """Return the start, the end, the label and the score of each entity, in their order.

    The package reads a text with a full stop, which is in no entity of the text itself.
    """
    policy = {} if settings.get("flat_ner", True) else {"overlap_policy": "nested"}
    found = model.extract_entities(
        text,
        labels,
        threshold=settings.get("threshold", 0.5),
        include_confidence=True,
        include_spans=True,
        **policy,
    )
    rows = [
        [each["start"], min(each["end"], len(text)), label, round(float(each["confidence"]), 5)]
        for label, spans in (found["entities"] or {}).items()
        for each in spans
        if each["start"] < len(text)
    ]
    return sorted(rows)


if __name__ == "__main__":
    main()
