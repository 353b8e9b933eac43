"""Every format, served by a real TorchServe from an archive; AWS's packages are stand-ins."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.handler_section import save_modes
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests import sounds
from tests.e2e.asking import ask_json
from tests.e2e.conftest import EXPORTED
from tests.handlers.tasks.test_automatic_speech_recognition import OF_WHISPER, WHISPER
from tests.samples import FINE, format_params
from tests.serving import Served, differences, explanation_of
from tests.standins.archives import write_yaml

MODE = "sequence_classification"
EXPLAINED = {"inputs": FINE, "parameters": {"method": "feature_ablation", "granularity": "word"}}


@pytest.fixture(scope="module")
def standins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ...]]:
    """The stand-ins that the archives of a format contain, importable without this repository."""
    folder = tmp_path_factory.mktemp("standins")
    for name in ("neuron", "torch_neuron", "torch_neuronx"):
        text = (ROOT / "tests" / "standins" / f"{name}.py").read_text(encoding="utf-8")
        alone = text.replace("tests.standins.neuron", "neuron")
        (folder / f"{name}.py").write_text(alone, encoding="utf-8")
    return {"neuron": (folder,), "neuronx": (folder,)}


@pytest.fixture(scope="module")
def all_formats(
    packed: Callable[..., Path], standins: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with a tiny model in each format that is installed, under the format's name."""
    store = tmp_path_factory.mktemp("formats")
    for save_mode in save_modes():
        if save_mode != "openvino" or importlib.util.find_spec("openvino"):
            archive = packed(save_mode, MODE, extra=standins.get(save_mode, ()))
            shutil.copyfile(archive, store / f"{save_mode}.mar")
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(workdir, model_store=store, timeout=480) as server:
        yield server


def check_format(server: Server, served: Callable[..., Served], save_mode: str) -> None:
    """Compare answers and explanations of a served format with those of the checkpoint."""
    answer = ask_json(server, f"/predictions/{save_mode}", {"inputs": FINE})
    assert answer.status_code == 200, answer.text
    assert not differences(answer.json(), served(MODE).ask(FINE), 1e-4)
    answer = ask_json(server, f"/explanations/{save_mode}", EXPLAINED)
    assert answer.status_code == 200, answer.text
    [(_, exact)] = served(MODE).post(explanation_of(EXPLAINED))
    assert not differences(answer.json(), exact, 1e-3)


def test_an_exported_model_is_served_beside_checkpoints(server: Server, served: Any) -> None:
    check_format(server, served, EXPORTED)


@pytest.fixture
def whisper(tmp_path: Path) -> Iterator[tuple[Server, Served]]:
    """A server with Whisper in the format that `auto` is on CPUs, and the checkpoint."""
    mode = "automatic_speech_recognition"
    checkpoint = sounds.write(tmp_path / "model", WHISPER)
    handler = {"mode": mode, "save_mode": "auto", "dtype": "float32"}
    config = write_yaml(tmp_path / "whisper.yaml", checkpoint, **handler)
    archive = pack(config, export_path=tmp_path, build=tmp_path / "build", checked=False)
    assert archive.choice and archive.choice.save_mode == "openvino"
    with TorchServe(tmp_path / "torchserve", model_store=tmp_path, timeout=480) as server:
        yield server, Served(checkpoint, mode)


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_whisper_in_openvino_writes_the_texts_of_the_checkpoint(
    whisper: tuple[Server, Served],
) -> None:
    server, exact = whisper
    asked = [(text, given) for text in sounds.TEXTS for given in OF_WHISPER]

    def ask(case: tuple[str, dict[str, Any]]) -> Any:
        body = {"inputs": case[0], "parameters": case[1]}
        return ask_json(server, "/predictions/whisper", body).json()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, asked))
    assert not differences(found, [exact.ask(text, **given) for text, given in asked], 1e-4)
    assert ask_json(server, "/predictions/whisper", {"inputs": "UklGRg=="}).status_code == 400


@pytest.mark.nightly
@pytest.mark.parametrize("save_mode", format_params())
def test_each_format_gives_the_same_answers_and_explanations(
    all_formats: Server, served: Any, save_mode: str
) -> None:
    check_format(all_formats, served, save_mode)
