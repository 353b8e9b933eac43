from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.formats import export
from hf_serve.handlers.formats.graph import find_graph_file, translate_load_errors
from hf_serve.handlers.types.request import Request
from tests import families
from tests.samples import FINE
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
MODE = "sequence_classification"
WITH, WITHOUT = "avx2 avx512_bf16", "avx2"  # flags of a processor


def test_a_file_of_another_name_is_found_by_its_pattern(tmp_path: Path) -> None:
    for name in ("b.pt", "a.pt", "a.pt2"):
        (tmp_path / name).touch()
    assert find_graph_file(tmp_path, "traced_model.pt", "*.pt") == tmp_path / "a.pt"
    with refused(WrongCheckpoint, "traced_model.pt"):
        find_graph_file(tmp_path, "traced_model.pt")


def test_an_error_of_the_runtime_is_reported_in_one_sentence() -> None:
    with pytest.raises(WrongCheckpoint) as caught, translate_load_errors("model.onnx"):
        raise KeyError("no\n node")
    assert str(caught.value) == Sentence("model.onnx")
    assert "\n" not in str(caught.value)


@pytest.fixture(params=["torchscript", pytest.param("torch_export", marks=pytest.mark.nightly)])
def packed(
    request: Any, checkpoint: Callable[..., Path], tmp_path: Path, processor: Any
) -> Callable[..., Path]:
    """A model exported on a machine with other flags."""

    def pack(flags: str, dtype: str) -> Path:
        processor(flags)
        folder = tmp_path / str(request.param)
        shutil.copytree(checkpoint(MODE), folder)
        handler = {"mode": MODE, "save_mode": request.param, "dtype": dtype, "min_agreement": 0}
        export(folder, ModelConfig.parse({"handler": handler}), folder, [Request(FINE)])
        return folder

    return pack


def warnings(folder: Path, dtype: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Load an exported model, send it a request, and return the logged warnings."""
    caplog.clear()
    assert Served(folder, MODE, save_mode=folder.name, dtype=dtype).ask(FINE)
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("there", "here", "made", "best"),
    [(WITH, WITHOUT, "bfloat16", "float32"), (WITHOUT, WITH, "float32", "bfloat16")],
)
def test_a_dtype_that_another_processor_chose_is_logged(
    packed: Any, processor: Any, caplog: Any, there: str, here: str, made: str, best: str
) -> None:
    folder = packed(there, "auto")
    assert warnings(folder, "auto", caplog) == []
    processor(here)
    (warning,) = warnings(folder, "auto", caplog)
    assert (
        f" computes in {made}, " in warning
        and f"this machine would be best with {best}; " in warning
    )
    assert "pack it again here, or name a dtype" in warning


def test_a_dtype_that_the_yaml_names_is_not_logged(packed: Any, caplog: Any) -> None:
    folder = packed(WITH, "float32")
    assert warnings(folder, "float32", caplog) == []


def test_a_graph_without_a_recorded_dtype_loads(packed: Any, processor: Any, caplog: Any) -> None:
    folder = packed(WITHOUT, "auto")
    manifest = json.loads((folder / "export.json").read_text())
    del manifest["dtype"]
    (folder / "export.json").write_text(json.dumps(manifest))
    processor(WITH)
    assert warnings(folder, "auto", caplog) == []


@pytest.mark.parametrize("save_mode", ["torchscript", "onnx"])
def test_a_graph_is_of_no_text_that_big_bird_reads_with_sparse_attention(
    tmp_path: Path, save_mode: str
) -> None:
    folder = tmp_path / "checkpoint"
    families.save(families.module("big_bird", MODE, block_size=4, num_random_blocks=1), folder)
    handler = {"mode": MODE, "save_mode": save_mode, "dtype": "float32"}
    with refused(WrongCheckpoint, "block_sparse", "handler.max_length: 28"):
        export(folder, ModelConfig.parse({"handler": handler}), folder)
    short = {**handler, "max_length": 28}
    export(folder, ModelConfig.parse({"handler": short}), folder)
    text = " ".join(["w7 w9"] * 20)
    wanted = Served(folder, MODE, max_length=28).ask(text)
    assert not differences(
        Served(folder, MODE, save_mode=save_mode, max_length=28).ask(text), wanted, 1e-4
    )
