"""The contract of every format in `handlers/formats/`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.config.handler_section import modes, save_modes
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import ConfigError
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from tests.samples import format_params, keys_of, requests_of
from tests.sentences import refused
from tests.serving import Served, differences

GENERATED = "text_generation"
BARE_ANSWERS = Path(__file__).parents[2] / "bare_answers.py"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
# Exports of other modes are nightly; test_image_graphs.py and test_audio_graphs.py have media.
QUICK = ("sequence_classification",)
# Their tiny checkpoints have images of several sizes, which graphs do not take.
FREE_SIZES = ("object_detection", "depth_estimation")
OTHERS = [
    mode
    for mode in modes()
    if mode not in (*QUICK, *FREE_SIZES)
    and tasks.get(mode).description.exports.supported
    and not tasks.get(mode).description.generation.texts
]
every_format = pytest.mark.parametrize("save_mode", format_params())


@pytest.fixture(scope="module")
def exported(packed: Callable[..., Path], tmp_path_factory: Any) -> Callable[..., Path]:
    """The unpacked archive of a tiny model in a format."""

    @cache
    def unpack(save_mode: str, mode: str, family: str = "Bert") -> Path:
        archive = packed(save_mode, mode, family)
        return ARCHIVE_FORMATS["mar"].unpack(
            archive, tmp_path_factory.mktemp(save_mode) / "unpacked"
        )

    return unpack


@every_format
@pytest.mark.parametrize(
    ("mode", "family"),
    [
        *((mode, "Bert") for mode in QUICK),
        *(pytest.param(mode, "Bert", marks=pytest.mark.nightly) for mode in OTHERS),
        pytest.param("sequence_classification", "Roberta", marks=pytest.mark.nightly),
    ],
)
def test_answers_do_not_depend_on_the_format(
    exported: Any, served: Any, save_mode: str, mode: str, family: str
) -> None:
    if tasks.get(mode).description.rows.kind not in formats.get(save_mode).capabilities.row_kinds:
        with refused(ConfigError, save_mode):
            exported(save_mode, mode, family)
        return
    model = Served(exported(save_mode, mode, family), mode, **keys_of(save_mode))
    for inputs, given in requests_of(mode):
        expected = served(mode, family=family).ask(inputs, **given)
        assert not differences(model.ask(inputs, **given), expected, 1e-4)


@every_format
def test_an_encoder_takes_packed_rows_unless_its_shape_is_fixed(
    exported: Any, save_mode: str
) -> None:
    folder = exported(save_mode, "sequence_classification")
    model = Served(folder, "sequence_classification", **keys_of(save_mode)).engine.model
    assert model.capabilities.supports_packing == (save_mode not in ("neuron", "neuronx"))


@every_format
def test_a_model_in_float32_is_tried_with_the_tolerance_of_float32(
    exported: Any, save_mode: str
) -> None:
    """A graph of YOSO had outputs in company that differ by less than the rounding of bfloat16."""
    folder = exported(save_mode, "sequence_classification")
    model = Served(folder, "sequence_classification", **keys_of(save_mode)).engine.model
    assert model.capabilities.full_precision == (save_mode not in ("neuron", "neuronx"))


@every_format
def test_a_format_generates_or_its_export_is_refused(
    exported: Any, served: Any, save_mode: str
) -> None:
    if formats.get(save_mode).capabilities.generates:
        model = Served(exported(save_mode, GENERATED), GENERATED, **keys_of(save_mode))
        assert model.ask("Ada") == served(GENERATED).ask("Ada")
        return
    with refused(ConfigError, "text_generation"):
        exported(save_mode, GENERATED)


@every_format
def test_without_its_weights_a_format_stops_the_load(
    exported: Any, tmp_path: Path, save_mode: str
) -> None:
    folder = exported(save_mode, "sequence_classification")
    for path in (*folder.glob("*.json"), *folder.glob("*.txt")):
        shutil.copy(path, tmp_path)
    with pytest.raises(ConfigError) as caught:
        Served(tmp_path, "sequence_classification", **keys_of(save_mode))
    assert "\n" not in str(caught.value)


# AWS's packages are stand-ins, which a bare interpreter does not have.
BARE = [name for name in save_modes() if name not in ("neuron", "neuronx", "openvino")]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        pytest.param(BARE, QUICK, id="torch and onnx", marks=pytest.mark.nightly),
        pytest.param(["pretrained"], modes(), id="every mode", marks=pytest.mark.nightly),
        pytest.param(
            ["openvino"],
            (*QUICK, GENERATED),
            id="openvino",
            marks=[pytest.mark.openvino, pytest.mark.nightly],
        ),
    ],
)
def test_archives_give_the_same_answers_in_a_bare_interpreter(
    exported: Any, names: list[str], wanted: list[str]
) -> None:
    able = [
        (save_mode, mode)
        for save_mode in names
        for mode in wanted
        if not (task := tasks.get(mode)).description.generation.texts
        or task.auto_class in formats.get(save_mode).capabilities.generates
    ]
    archives = [(str(exported(*each)), requests_of(each[1])) for each in able]
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(BARE_ANSWERS)],
        input=json.dumps(archives),
        capture_output=True,
        text=True,
        check=True,
        cwd=exported(*able[0]),
    )
    for (save_mode, mode), (_, requests), answers in zip(
        able, archives, json.loads(done.stdout), strict=True
    ):
        model = Served.of(Engine.load(exported(save_mode, mode)))
        expected = [model.ask(inputs, **given) for inputs, given in requests]
        assert not differences(answers, json.loads(json.dumps(expected)), 1e-4)
