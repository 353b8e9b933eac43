"""Every format, served by a real TorchServe from an archive; AWS's packages are stood in for."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from handlers.config.choices import save_modes
from scripts.kit.places import ROOT
from scripts.kit.server import Server
from scripts.kit.torchserve import TorchServe
from tests.e2e.asking import ask_json
from tests.samples import FINE, format_params
from tests.serving import differences

MODE = "sequence_classification"


@pytest.fixture(scope="module")
def standins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ...]]:
    """What the archives of a format hold beside the model: the stand-ins, without this tree."""
    folder = tmp_path_factory.mktemp("standins")
    for name in ("neuron", "torch_neuron", "torch_neuronx"):
        text = (ROOT / "tests" / "standins" / f"{name}.py").read_text(encoding="utf-8")
        alone = text.replace("tests.standins.neuron", "neuron")
        (folder / f"{name}.py").write_text(alone, encoding="utf-8")
    return {"neuron": (folder,), "neuronx": (folder,)}


@pytest.fixture(scope="module")
def server(
    packed: Callable[..., Path], standins: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with a tiny model in each format that is installed, under the format's name."""
    store = tmp_path_factory.mktemp("formats")
    for save_mode in save_modes():
        if save_mode != "openvino" or importlib.util.find_spec("openvino"):
            archive = packed(save_mode, MODE, extra=standins.get(save_mode, ()))
            shutil.copyfile(archive, store / f"{save_mode}.mar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        workdir = tmp_path_factory.mktemp("torchserve")
        with TorchServe(workdir, model_store=store, timeout=480) as server:
            yield server


@pytest.mark.parametrize("save_mode", format_params())
def test_a_model_of_each_format_answers_alike(server: Server, served: Any, save_mode: str) -> None:
    answer = ask_json(server, f"/predictions/{save_mode}", {"inputs": FINE})
    assert answer.status_code == 200, answer.text
    assert not differences(answer.json(), served(MODE).ask(FINE), 1e-4)


@pytest.mark.parametrize("save_mode", format_params())
def test_a_model_of_each_format_is_explained_alike(
    server: Server, served: Any, save_mode: str
) -> None:
    body = {"inputs": FINE, "parameters": {"method": "feature_ablation", "granularity": "word"}}
    answer = ask_json(server, f"/explanations/{save_mode}", body)
    assert answer.status_code == 200, answer.text
    exact = ask_json(server, "/explanations/pretrained", body).json()
    assert not differences(answer.json(), exact, 1e-3)
