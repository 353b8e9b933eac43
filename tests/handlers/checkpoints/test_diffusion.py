"""Checkpoints of diffusers: their index, their files, and what is refused before loading."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints.checkpoint_files import files_in
from hf_serve.handlers.checkpoints.diffusion import DiffusionCheckpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.archives.contents import contents
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.download import check_folder, download
from tests.sentences import refused
from tests.serving import Served
from tests.standins.archives import write_yaml
from tests.standins.hub import LocalHub

MODE = "text_to_image"
HANDLER = HandlerSection(mode=MODE, model_name="org/name")
UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture
def folder(checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    """A checkpoint that a test may change."""
    return shutil.copytree(checkpoint(MODE), tmp_path / "model")


def rewrite(folder: Path, **values: Any) -> None:
    path = folder / "model_index.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}))


def test_an_archive_has_the_files_of_each_component_without_variants(
    folder: Path, tmp_path: Path
) -> None:
    expected = files_in(folder)
    for other in ("unet/diffusion_pytorch_model.bin", "unet/model.py", "onnx/model.onnx"):
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).write_text("not needed")
    shutil.copy(folder / UNET, folder / "unet" / "diffusion_pytorch_model.fp16.safetensors")
    parts = contents(write_yaml(tmp_path / "m.yaml", folder, mode=MODE))
    own = {name for name in parts if not name.startswith(("handlers/", "MAR-INF"))}
    assert own == expected | {"model-config.yaml", "transformers_handler.py"}


def test_a_download_has_the_same_files(folder: Path, tmp_path: Path) -> None:
    expected = files_in(folder)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_text("not needed")
    with LocalHub({"org/name": folder}) as hub:
        download(HANDLER, tmp_path / "downloaded", Hub(hub.url))
    assert files_in(tmp_path / "downloaded") - {".source.json"} == expected


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"_class_name": ["code", "Pipeline"]}, ["code", "Pipeline"]),
        ({"_class_name": "StableDiffusionImg2ImgPipeline"}, ["StableDiffusionImg2ImgPipeline"]),
        ({"unet": ["my_unet", "MyUNet"]}, ["MyUNet"]),
        ({"unet": ["../unet", "MyUNet"]}, ["MyUNet"]),
        ({"other": ["diffusers", "UNet2DConditionModel"]}, ["other"]),
    ],
)
def test_a_checkpoint_with_code_of_its_own_or_without_a_component_is_refused(
    folder: Path, values: dict[str, Any], facts: list[str]
) -> None:
    rewrite(folder, **values)
    with refused(WrongCheckpoint, *facts):
        check_folder(HANDLER, folder)


def test_pickles_are_refused_whatever_the_yaml_allows(folder: Path) -> None:
    (folder / UNET).rename(folder / "unet" / "diffusion_pytorch_model.bin")
    with refused(WrongCheckpoint, "unet"):
        check_folder(HANDLER.model_copy(update={"allow_pickle": True}), folder)


def test_weights_that_do_not_fit_their_config_are_refused(folder: Path) -> None:
    (folder / UNET).write_bytes((folder / UNET).read_bytes()[:5000])
    with refused(WrongCheckpoint, "StableDiffusionPipeline"):
        Served(folder, MODE)


def test_another_checkpoint_has_no_pipeline(checkpoint: Callable[..., Path]) -> None:
    with refused(WrongCheckpoint, "diffusers"):
        DiffusionCheckpoint.read(checkpoint("fill_mask"), HANDLER)


def test_a_safety_checker_of_diffusers_is_known(folder: Path) -> None:
    rewrite(folder, safety_checker=["stable_diffusion", "StableDiffusionSafetyChecker"])
    DiffusionCheckpoint.read(folder, HANDLER).check("")
