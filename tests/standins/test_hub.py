from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, snapshot_download

from tests.standins.hub import LocalHub


def test_snapshot_download_accepts_it_as_a_hub(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    (stored / "onnx").mkdir(parents=True)
    (stored / "config.json").write_text("{}")
    (stored / "model.safetensors").write_bytes(b"weights")
    (stored / "onnx" / "model.onnx").write_bytes(b"graph")
    with LocalHub({"org/name": stored}) as hub:
        listed = HfApi(hub.url).list_repo_files("org/name")
        snapshot_download("org/name", local_dir=tmp_path / "here", endpoint=hub.url)
    assert listed == ["config.json", "model.safetensors", "onnx/model.onnx"]
    assert all((tmp_path / "here" / name).is_file() for name in listed)
