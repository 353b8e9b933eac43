"""The YAMLs of the repository are packed, with a tiny model in place of each one's model."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.config.handler_section import AUTO, modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.formats import plan
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.paths import MODEL_CONFIGS
from tests.samples import INPUTS

PATHS = sorted(MODEL_CONFIGS.rglob("*.yaml"))


def config_params() -> list[Any]:
    """Return the YAMLs as a test's parameter.

    All but the first of a format and a layout of checkpoints are nightly.
    """
    found, known = [], set()
    for path in PATHS:
        handler = plan(ModelConfig.read(path)).handler
        kind = (handler.save_mode, tasks.get(handler.mode).description.generation.images)
        marks = [pytest.mark.openvino] if handler.save_mode == "openvino" else []
        # OpenVINO takes seconds for each.
        nightly = [pytest.mark.nightly] if marks or kind in known else []
        found.append(pytest.param(path, id=path.stem, marks=marks + nightly))
        known.add(kind)
    return found


def test_the_default_yaml_of_a_mode_has_its_fastest_format() -> None:
    fast = [mode for mode in modes() if tasks.get(mode).description.exports.fastest_formats]
    found = {mode: ModelConfig.read(MODEL_CONFIGS / f"{mode}.yaml").handler for mode in fast}
    assert found
    assert not [mode for mode, handler in found.items() if handler.save_mode != AUTO]


def test_each_yaml_names_a_format_that_can_be_planned() -> None:
    planned = {path.stem: plan(ModelConfig.read(path)).handler for path in PATHS}
    assert {handler.mode for handler in planned.values()} == set(modes())
    assert AUTO not in {handler.save_mode for handler in planned.values()}


def rewritten(path: Path, document: Any, checkpoint: Path, folder: Path) -> Path:
    """Write a YAML with another checkpoint and few calibration rows."""
    rows = [json.dumps({"inputs": inputs}) for inputs in INPUTS[document["handler"]["mode"]]]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    own = {"model_name": str(checkpoint), "calibration": "rows.jsonl", "min_agreement": 0}
    handler = {**document["handler"], **own}
    handler.pop("revision", None)
    (folder / path.name).write_text(yaml.safe_dump({**document, "handler": handler}))
    return folder / path.name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("path", config_params())
def test_each_yaml_packs_the_format_that_it_names(
    path: Path, checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    handler = document["handler"]
    family = {"family": "Llama"} if "torchrun" in document else {}
    config_path = rewritten(path, document, checkpoint(handler["mode"], **family), tmp_path)

    archive = pack(config_path, export_path=tmp_path, build=tmp_path / "build", checked=False)

    config = plan(ModelConfig.read(config_path))
    save_mode = config.handler.save_mode
    with zipfile.ZipFile(archive.path) as packed:
        weights = any(name.endswith("model.safetensors") for name in packed.namelist())
    assert weights == formats.get(save_mode).needs_weights(config)
    lossy = save_mode == "neuronx" or handler.keys() & {"dtype", "quantization"}
    assert (archive.quality is not None) == bool(lossy and save_mode != "pretrained")
    assert (archive.choice and archive.choice.save_mode) in (None, save_mode)
