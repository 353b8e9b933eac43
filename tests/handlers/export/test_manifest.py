from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_serve.handlers.batching.sequence_packing import SEGMENTS
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.export.manifest import ExportManifest, Shape, Signature
from tests.sentences import refused

SIGNATURE = Signature(("input_ids", "attention_mask"), ("logits",))


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("shape", [None, Shape(4, 128, ("logits",))])
def test_a_written_manifest_is_read(tmp_path: Path, dtype: str | None, shape: Shape | None) -> None:
    manifest = ExportManifest(SIGNATURE, dtype, shape)
    manifest.write(tmp_path)
    assert ExportManifest.read(tmp_path, ["logits"]) == manifest


def test_a_graph_without_a_manifest_takes_ids_and_mask(tmp_path: Path) -> None:
    assert ExportManifest.read(tmp_path, ["logits"]) == ExportManifest(SIGNATURE)


def test_the_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    shape = {"rows": 4, "width": 24, "per_token": []}
    names = {"inputs": SIGNATURE.inputs, "outputs": SIGNATURE.outputs}
    documents = {"export": names, "dtype": {"dtype": "float32"}, "shape": shape}
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    expected = ExportManifest(SIGNATURE, "float32", Shape(4, 24, ()))
    assert ExportManifest.read(tmp_path, ["logits"]) == expected


def test_a_graph_with_other_outputs_is_refused(tmp_path: Path) -> None:
    ExportManifest(SIGNATURE).write(tmp_path)
    with refused(WrongCheckpoint, "logits", "start_logits"):
        ExportManifest.read(tmp_path, ["start_logits"])


def test_packed_rows_have_segments() -> None:
    assert Signature(("input_ids", SEGMENTS), ("logits",)).is_packed
    assert not SIGNATURE.is_packed
