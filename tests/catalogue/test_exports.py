"""An export of an entry answers as its checkpoint does, and int8 is measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.documents import read_json
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.formats import export, find_problem
from hf_serve.handlers.types.model_info import TaskDescription
from hf_serve.handlers.types.request import Request
from hf_serve.scripts.hub.catalogue import read_catalogue
from tests.catalogue.checkpoints import write
from tests.samples import requests_of
from tests.serving import Served, differences


def is_exported(task: TaskDescription) -> bool:
    """Return whether models of a task are exported whole."""
    return task.exports.supported and task.exports.one_forward and not task.generation.texts


ENTRIES = read_catalogue()
# Entries whose rows run in one forward; models that generate, such as Whisper, have other tests.
EXPORTED = [
    name
    for name, entry in ENTRIES.items()
    if entry.mode
    and entry.checkpoint.config.get("model_type") not in ("moonshine", "whisper")
    and is_exported(tasks.get(entry.mode).description)
]
FORMATS: dict[str, dict[str, Any]] = {
    "onnx": {"save_mode": "onnx"},
    "torchscript": {"save_mode": "torchscript", "batch_size": 4, "max_length": 128},
    "openvino": {"save_mode": "openvino"},
    "int8": {"save_mode": "openvino", "quantization": "int8", "min_agreement": 0},
}
# Random weights are rounded harder than trained ones. Scores that are no labels agree if they are
# near each other.
LEAST_AGREEMENT, NEAR = 0.5, 0.1
# Exports that fail, or whose answers differ by more, and why.
KNOWN = {
    "colmodernvbert": "transformers cannot trace the masks of encoders of pages",
    "colpali": "transformers cannot trace the masks of encoders of pages",
    "colqwen2": "transformers cannot trace the masks of encoders of pages",
    "embeddinggemma": "transformers cannot trace the masks of Gemma 3 in both directions",
}
# Sizes of a config that a tiny checkpoint needs for an export. The tokens that fill up a query to
# 48 read its text alone, within 64 tokens on each side as published. Within 16, those far from a
# short text read nothing, and a graph computes another vector of nothing than torch.
LARGER: dict[str, dict[str, int]] = {"gte-moderncolbert": {"local_attention": 128}}
# Why models of images of any proportions have no graph.
SEVERAL_SIZES = "images of several sizes"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.openvino if "openvino" in keys.values() else ())
        for form, keys in FORMATS.items()
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.xfail(reason=KNOWN[name], strict=False) if name in KNOWN else (),
        )
        for name in EXPORTED
    ],
)
def test_an_export_answers_as_its_checkpoint(
    name: str, form: str, tmp_path: Path, record_property: Any
) -> None:
    entry = ENTRIES[name]
    mode = str(entry.mode)
    checkpoint = write(entry, tmp_path / "checkpoint")
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**read_json(path), **LARGER.get(name, {})}), encoding="utf-8")
    keys = {"dtype": "float32", **entry.handler, **FORMATS[form]}
    config = ModelConfig.parse({"handler": {"mode": mode, **keys}})
    if problem := find_problem(config, config.handler.save_mode):
        pytest.skip(problem)
    folder = shutil.copytree(checkpoint, tmp_path / "export")
    samples = [Request(inputs, given) for inputs, given in requests_of(mode)]
    try:
        report = export(folder, config, folder, samples * 4)
    except WrongCheckpoint as error:
        if SEVERAL_SIZES not in str(error):
            raise
        pytest.skip(str(error))
    bodies = [{"inputs": inputs, "parameters": given} for inputs, given in requests_of(mode)]
    same = {key: value for key, value in keys.items() if key not in ("save_mode", "quantization")}
    wanted = Served(checkpoint, mode, **same).post(*bodies)
    found = Served(folder, mode, **keys).post(*bodies)
    assert {status for status, _ in found} == {200}, found
    if form == "int8":
        assert report is not None
        record_property("agreement", report.label_agreement)
        near = report.largest_score_difference <= NEAR
        assert near or report.label_agreement >= LEAST_AGREEMENT
    else:
        assert not differences(found, wanted, 1e-3)
