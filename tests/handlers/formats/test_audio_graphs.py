"""Models that read audio as graphs: answers of each format, and Whisper in OpenVINO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.formats import export
from hf_serve.handlers.types.request import Request
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.packing import pack
from tests import sounds
from tests.handlers.formats.test_image_graphs import formats_without_export
from tests.handlers.tasks.test_automatic_speech_recognition import (
    LONG,
    MODE,
    OF_CTC,
    OF_WHISPER,
    WHISPER,
)
from tests.sentences import refused
from tests.serving import Served, differences
from tests.sounds import TEXTS, encoded, file_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
GRAPHS = [family for family in sounds.FAMILIES if family != WHISPER]
LONG_TEXTS = [encoded(file_of(each)) for each in LONG]


def exported(folder: Path, family: str, save_mode: str, **keys: Any) -> FidelityReport | None:
    """Export a checkpoint in its own folder, without its weights."""
    handler = {"mode": sounds.mode_of(family), "save_mode": save_mode, "dtype": "float32", **keys}
    samples = [Request(text) for text in TEXTS]
    report = export(folder, ModelConfig.parse({"handler": handler}), folder, samples)
    (folder / "model.safetensors").unlink()
    return report


@formats_without_export
@pytest.mark.parametrize("family", GRAPHS)
def test_answers_of_a_family_do_not_depend_on_the_format(
    tmp_path: Path, family: str, save_mode: str
) -> None:
    mode = sounds.mode_of(family)
    folder = sounds.write(tmp_path / "model", family)
    exact = Served(folder, mode)
    asked = OF_CTC if mode == MODE else [{}]
    texts = [*TEXTS, *reversed(TEXTS)]
    expected = [exact.ask(texts, **given) for given in asked]
    exported(folder, family, save_mode)
    model = Served(folder, mode, save_mode=save_mode)
    assert not differences([model.ask(texts, **given) for given in asked], expected, 1e-4)
    assert not differences([model.ask(text) for text in texts], expected[0], 1e-4)


@pytest.mark.openvino
@pytest.mark.nightly
@pytest.mark.parametrize("family", ["Wav2Vec2ForSequenceClassification", "Wav2Vec2ForCTC"])
def test_8_bits_are_measured_on_other_audio_than_that_of_the_calibration(
    tmp_path: Path, family: str
) -> None:
    folder = sounds.write(tmp_path / "model", family)
    report = exported(folder, family, "openvino", quantization="int8", min_agreement=0)
    assert report is not None
    assert report.rows == len(TEXTS) // 2
    # A label for each file, or a letter for each frame.
    assert (report.decisions > report.rows) == (family == "Wav2Vec2ForCTC")
    assert Served(folder, sounds.mode_of(family), save_mode="openvino").ask(TEXTS[0])


@pytest.fixture(scope="module")
def whispers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, Served]:
    """Whisper as torch runs it, and an archive of it as OpenVINO does."""
    folder = tmp_path_factory.mktemp("whisper")
    checkpoint = sounds.write(folder / "model", WHISPER)
    handler = {"mode": MODE, "save_mode": "openvino", "model_name": str(checkpoint)}
    config = folder / "whisper.yaml"
    config.write_text(json.dumps({"handler": {**handler, "dtype": "float32"}}), encoding="utf-8")
    archive = pack(config, export_path=folder, build=folder / "build", checked=False).path
    unpacked = ARCHIVE_FORMATS["mar"].unpack(archive, folder / "unpacked")
    return Served(checkpoint, MODE), Served(unpacked, MODE, save_mode="openvino")


@pytest.mark.openvino
@pytest.mark.parametrize(
    "parameters",
    [
        parameters
        if "num_beams" in parameters and "return_timestamps" not in parameters
        else pytest.param(parameters, marks=pytest.mark.nightly)
        for parameters in OF_WHISPER
    ],
)
def test_openvino_writes_the_texts_and_times_of_torch(
    whispers: tuple[Served, Served], parameters: dict[str, Any]
) -> None:
    exact, model = whispers
    texts = [*TEXTS, *reversed(TEXTS)]
    expected = exact.ask(texts, **parameters)
    assert not differences(model.ask(texts, **parameters), expected, 1e-6)
    assert not differences([model.ask(text, **parameters) for text in TEXTS], expected[:4], 1e-6)


@pytest.mark.openvino
@pytest.mark.parametrize(
    "timestamps", [pytest.param(each, marks=pytest.mark.nightly) for each in (None, True, "word")]
)
def test_openvino_reads_long_audio_in_chunks(
    whispers: tuple[Served, Served], timestamps: Any
) -> None:
    exact, model = whispers
    given = {"return_timestamps": timestamps} if timestamps else {}
    asked = (LONG_TEXTS, {**given, "prompt": "a b c"}), (LONG_TEXTS, {**given, "num_beams": 1})
    for texts, parameters in asked:
        expected = exact.ask(texts, **parameters)
        assert not differences(model.ask(texts, **parameters), expected, 1e-6)


@pytest.mark.openvino
def test_openvino_samples_the_tokens_of_torch(whispers: tuple[Served, Served]) -> None:
    exact, model = whispers
    sampled = {"temperature": 1.0, "num_beams": 1, "seed": 3}
    assert model.ask(TEXTS, **sampled) == exact.ask(TEXTS, **sampled)


@pytest.mark.openvino
@pytest.mark.nightly
def test_whisper_is_compared_by_the_next_token_after_each_of_the_checkpoints(
    tmp_path: Path,
) -> None:
    keys: dict[str, Any] = {"quantization": "int8_weights", "dtype": "bfloat16"}
    folder = sounds.write(tmp_path / "model", WHISPER)
    report = exported(folder, WHISPER, "openvino", min_agreement=0.5, **keys)
    assert report is not None
    assert report.decisions > 4 * report.rows
    assert Served(folder, MODE, save_mode="openvino", **keys).ask(TEXTS[0])["text"]


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        (
            {"save_mode": "torchscript"},
            ["save_mode: torchscript", "save_mode: openvino"],
        ),
        pytest.param(
            {"save_mode": "openvino", "quantization": "int8"},
            ["quantization: int8", "int8_weights"],
            marks=pytest.mark.openvino,
        ),
    ],
)
def test_what_whisper_cannot_be_exported_to_is_refused(
    tmp_path: Path, keys: dict[str, Any], facts: list[str]
) -> None:
    folder = sounds.write(tmp_path / "model", WHISPER)
    with refused(WrongCheckpoint, *facts):
        exported(folder, WHISPER, **keys)
