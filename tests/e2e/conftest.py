"""One real TorchServe for the end to end tests: the demo models and exported ones.

A test that needs a server with other settings is marked `nightly`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock
from selenium.webdriver import Chrome

from hf_serve.demo_models import ensure
from hf_serve.demo_models.trainers.text_generation import CHAT_TEMPLATE
from hf_serve.handlers import tasks
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.paths import MODEL_CONFIGS, MODELS
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.browsing import started_browser
from tests.docs.pages import DOCS, blocks_of
from tests.e2e.served import ENDPOINT_HANDLER, INFERENCE_SCRIPT, served_modes
from tests.modes import cases

# Several models load and answer on cores that other processes may use.
PATIENT = {"startupTimeout": 480, "responseTimeout": 600}
# An exported model beside the checkpoints; `test_formats.py` serves one of each format.
EXPORTED = "onnx"
# The model of the shipped YAML of text generation: OpenVINO with continuous batching on a CPU.
SHIPPED = "text_generation_shipped"
# Without continuous batching, with which TorchServe cannot describe a model.
STATIC = {"batchSize": 16, "maxBatchDelay": 10}
OWN_CODE = DOCS / "custom-code.md"
TEMPLATE = "chat_template.jinja"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a group of modes one after the other, so that its server starts once.

    pytest orders by a parameter's index, which is the same group's in no two tests.
    """
    places = {index: group for index, item in enumerate(items) if (group := _group_of(item))}
    groups = list(dict.fromkeys(places.values()))
    ordered = sorted(places, key=lambda index: groups.index(places[index]))
    for index, item in zip(places, [items[index] for index in ordered], strict=True):
        items[index] = item


@pytest.fixture(scope="session")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the YAMLs that are packed, with a chat template."""
    configs = tmp_path_factory.mktemp("configs")
    (configs / TEMPLATE).write_text(CHAT_TEMPLATE, encoding="utf-8")
    return configs


@pytest.fixture(scope="session")
def pack_demo(
    configs: Path, checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Path], None]:
    """Pack the demo model of a mode: `pack_demo(mode, store)`.

    Those for images and audio take long to train; a tiny model stands for each.
    """

    # Other processes of these tests make models too, and one that another makes is refused.
    making = FileLock(tmp_path_factory.getbasetemp().parent / "models.lock")

    def make(mode: str, store: Path) -> None:
        task = tasks.get(mode)
        if task.description.wire.reads_media or task.description.wire.result_files:
            own = {"model_name": str(checkpoint(mode)), **cases(mode).repeatable}
            pack(_exact(configs, mode, **own), export_path=store, checked=False)
            return
        with making:
            ensure([mode])
        extra = [configs / TEMPLATE] if task.description.generation.texts else []
        pack(_exact(configs, mode), export_path=store, extra_files=extra, checked=False)

    return make


@pytest.fixture(scope="session")
def store(
    pack_demo: Callable[[str, Path], None],
    configs: Path,
    packed: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A model store with an archive of each default demo model and of one exported model."""
    store = tmp_path_factory.mktemp("model_store")
    for mode in served_modes():
        pack_demo(mode, store)
    if importlib.util.find_spec("openvino"):
        template = configs / TEMPLATE
        pack(_shipped(configs), export_path=store, extra_files=[template], checked=False)
    shutil.copyfile(packed(EXPORTED, "sequence_classification"), store / f"{EXPORTED}.mar")
    for path in _inference_code(configs):
        pack(path, export_path=store, checked=False)
    return store


def _inference_code(folder: Path) -> list[Path]:
    """Write the examples of models with their own inference code, and their YAMLs."""
    examples = [block.text for block in blocks_of(OWN_CODE) if block.language == "python"][1:]
    model = folder / "endpoint_handler"
    model.mkdir()
    (model / "words.txt").write_text("fine film", encoding="utf-8")
    (model / "handler.py").write_text(examples[0], encoding="utf-8")
    (folder / "inference.py").write_text(examples[1], encoding="utf-8")
    handlers = {
        ENDPOINT_HANDLER: {"mode": "custom", "custom": "handler.py", "model_name": str(model)},
        INFERENCE_SCRIPT: {
            "mode": "sequence_classification",
            "custom": "inference.py",
            "model_name": str(MODELS / "sequence_classification"),
        },
    }
    for name, handler in handlers.items():
        document = {**PATIENT, "handler": handler}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return [folder / f"{name}.yaml" for name in handlers]


def _exact(folder: Path, mode: str, **handler: Any) -> Path:
    """Write a mode's YAML with dtype float32: answers are compared on every processor.

    The model is the checkpoint, in static batches: `SHIPPED` has the export of text generation.
    """
    document = _document(mode)
    if document.get("continuousBatching"):
        # TorchServe repeats a describe call of such a model without end.
        document |= {**STATIC, "continuousBatching": False}
    if document["handler"].get("save_mode") == "auto":
        document["handler"]["save_mode"] = "pretrained"
    document["handler"] |= handler
    path = folder / f"{mode}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _shipped(folder: Path) -> Path:
    """Write the YAML of text generation for a CPU, in float32 and measured on few rows."""
    rows = [json.dumps({"inputs": f"Once upon a time there were {count} foxes."}) for count in "23"]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    document = _document("text_generation")
    own = {"calibration": "rows.jsonl", "model_name": str(MODELS / "text_generation")}
    document = {**document, "deviceType": "cpu", "handler": {**document["handler"], **own}}
    path = folder / f"{SHIPPED}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _document(mode: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        (MODEL_CONFIGS / f"{mode}.yaml").read_text(encoding="utf-8")
    )
    document["handler"]["dtype"] = "float32"
    return {**document, **PATIENT}


@pytest.fixture(scope="session")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=480) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with started_browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def _group_of(item: pytest.Item) -> Any:
    """Return the modes of the server of `test_other_modes.py` that a test needs, or None."""
    return getattr(getattr(item, "callspec", None), "params", {}).get("group_server")
