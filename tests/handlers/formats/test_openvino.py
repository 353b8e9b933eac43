"""OpenVINO beyond the contract of formats: precision and quantization."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from handlers.config.model_config import ModelConfig
from handlers.errors import ConfigError, WrongCheckpoint, WrongConfig
from handlers.export.parity_report import FILE as QUALITY
from handlers.export.parity_report import ParityReport, compare_outputs
from handlers.formats import check_config, export
from handlers.schemas.request import Request
from tests.samples import FINE, requests_of
from tests.serving import Served

pytestmark = [
    pytest.mark.openvino,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
CLASSIFIES, GENERATES = "sequence_classification", "text_generation"


def handler(mode: str, **more: Any) -> dict[str, Any]:
    return {"mode": mode, "save_mode": "openvino", "min_agreement": 0, **more}


def samples(mode: str) -> list[Request]:
    return [Request(inputs) for inputs, _ in requests_of(mode)] * 4


def precision(served: Served) -> str:
    """Return the configured precision of OpenVINO; a CPU without it computes in float32."""
    model: Any = served.engine.model
    return str(model._model.ov_config["INFERENCE_PRECISION_HINT"])


def export_to(folder: Path, checkpoint: Path, **settings: Any) -> ParityReport | None:
    shutil.copytree(checkpoint, folder)
    config = ModelConfig.parse({"handler": settings})
    found = export(folder, config, folder, samples(settings["mode"]))
    (folder / "model.safetensors").unlink()
    return found


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        (CLASSIFIES, "int8"),
        pytest.param(CLASSIFIES, "int8_weights", marks=pytest.mark.slow),
        ("token_classification", "int4_weights"),
        pytest.param("question_answering", "int8", marks=pytest.mark.slow),
        pytest.param(GENERATES, "int4_weights", marks=pytest.mark.slow),
    ],
)
def test_a_quantized_model_is_smaller_measured_and_answers(
    checkpoint: Callable[..., Path], tmp_path: Path, mode: str, how: str
) -> None:
    settings = handler(mode, quantization=how)
    found = export_to(tmp_path / "small", checkpoint(mode), **settings)
    assert found is not None
    assert found == ParityReport.read(tmp_path / "small" / QUALITY)
    assert found.rows
    assert 0 < found.label_agreement <= 1
    small = (tmp_path / "small" / "openvino_model.bin").stat().st_size
    assert small < 0.6 * (checkpoint(mode) / "model.safetensors").stat().st_size
    model = Served(tmp_path / "small", **settings)
    for inputs, given in requests_of(mode):
        model.ask(inputs, **given)


@pytest.mark.parametrize(
    ("agreements", "min_agreement", "kept"),
    [
        ([0.9, 0.99, 0.97], 0.99, 1),
        pytest.param([1.0], 0.99, 0, marks=pytest.mark.slow),
        pytest.param([0.9], 0, 0, marks=pytest.mark.slow),
    ],
)
def test_int8_leaves_first_layers_in_float_until_labels_agree(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: Any,
    agreements: list[float],
    min_agreement: float,
    kept: int,
) -> None:
    found = iter(ParityReport(9, 9, share, 0.0) for share in agreements)
    monkeypatch.setattr("handlers.export.quantize.compare_outputs", lambda *_, **__: next(found))
    perfect = ParityReport(9, 9, 1.0, 0.0)
    monkeypatch.setattr("handlers.export.exporter.compare_outputs", lambda *_, **__: perfect)
    settings = handler(CLASSIFIES, quantization="int8", min_agreement=min_agreement)
    export_to(tmp_path / "small", checkpoint(CLASSIFIES), **settings)
    assert next(found, None) is None
    first = [name for name in quantized(tmp_path / "small") if "layer.0.attention" in name]
    assert bool(first) == (not kept)


@pytest.mark.parametrize(
    "more",
    [{}, pytest.param({"BetterTransformer": False}, marks=pytest.mark.slow)],
    ids=["packed", "padded"],
)
@pytest.mark.parametrize(
    "problem", ["multi_label_classification", pytest.param(None, marks=pytest.mark.slow)]
)
def test_int8_and_the_export_are_compared_by_the_same_rule(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: Any,
    problem: str | None,
    more: dict[str, Any],
) -> None:
    comparisons: list[tuple[str, bool]] = []
    for module in ("quantize", "exporter"):

        def compared(*both: Any, independent: bool = False, module: str = module) -> ParityReport:
            comparisons.append((module, independent))
            return compare_outputs(*both, independent=independent)

        monkeypatch.setattr(f"handlers.export.{module}.compare_outputs", compared)
    settings = handler(CLASSIFIES, quantization="int8", **more)
    export_to(tmp_path / "small", checkpoint(CLASSIFIES, problem_type=problem), **settings)
    independent = problem is not None
    assert set(comparisons) == {("quantize", independent), ("exporter", independent)}


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        ("bfloat16", {"INFERENCE_PRECISION_HINT": "bf16"}),
        pytest.param("auto", {}, marks=pytest.mark.slow),
    ],
)
def test_int8_is_measured_in_the_configured_precision(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: Any, dtype: str, hint: Any
) -> None:
    targets: list[Any] = []

    def recorded(graph: Any, _: Any, __: Any, target: Any, **packages: Any) -> Any:
        targets.append(target)
        return graph

    monkeypatch.setattr("handlers.formats.openvino.quantize", recorded)
    settings = handler(CLASSIFIES, quantization="int8", dtype=dtype)
    export_to(tmp_path / "small", checkpoint(CLASSIFIES), **settings)
    (target,) = targets
    assert target.settings == {"INFERENCE_NUM_THREADS": torch.get_num_threads(), **hint}


def test_a_model_that_agrees_too_little_is_refused(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    bad = ParityReport(10, 10, 0.9, 0.4)
    monkeypatch.setattr("handlers.export.exporter.compare_outputs", lambda *_, **__: bad)
    settings = handler(CLASSIFIES, quantization="int8_weights", min_agreement=0.95)
    with pytest.raises(WrongCheckpoint, match=r"90\.00% of 10 labels.*min_agreement is 0.95"):
        export_to(tmp_path / "bad", checkpoint(CLASSIFIES), **settings)


def test_int8_needs_rows_to_calibrate_with(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    config = ModelConfig.parse({"handler": handler(CLASSIFIES, quantization="int8")})
    with pytest.raises(WrongConfig, match="no rows"):
        export(checkpoint(CLASSIFIES), config, tmp_path)


@pytest.mark.parametrize("rows", [[], [Request("a long text " * 90)]], ids=["none", "too long"])
def test_a_lossy_export_needs_rows_to_measure(
    checkpoint: Callable[..., Path], tmp_path: Path, rows: list[Request]
) -> None:
    settings = handler(CLASSIFIES, quantization="int8_weights", truncation=False)
    config = ModelConfig.parse({"handler": settings})
    with pytest.raises(WrongConfig, match=r"handler\.calibration"):
        export(checkpoint(CLASSIFIES), config, tmp_path, rows)


def test_the_error_for_an_export_without_packages_names_the_command(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    config = ModelConfig.parse({"handler": handler(CLASSIFIES)})
    with pytest.raises(WrongConfig, match="pip install"):
        export(checkpoint(CLASSIFIES), config, tmp_path)


def test_a_calibration_row_that_the_mode_refuses_is_named(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    config = ModelConfig.parse({"handler": handler(CLASSIFIES, quantization="int8")})
    with pytest.raises(WrongConfig, match=r"handler\.calibration"):
        export(checkpoint(CLASSIFIES), config, tmp_path, [Request(3)])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"mode": CLASSIFIES, "quantization": "int8"}, "use save_mode: openvino"),
        (handler(GENERATES, quantization="int8"), "use int8_weights or int4_weights"),
    ],
)
def test_an_unsupported_quantization_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(WrongConfig, match=sentence):
        check_config(ModelConfig.parse({"handler": settings}))


def test_the_error_for_a_load_without_packages_names_the_command(
    checkpoint: Callable[..., Path], monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ConfigError, match="pip install"):
        Served(checkpoint(CLASSIFIES), **handler(CLASSIFIES))


def test_the_yaml_sets_the_precision(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    padded = handler(CLASSIFIES, BetterTransformer=False)
    export_to(tmp_path / "model", checkpoint(CLASSIFIES), **padded)
    exact = Served(tmp_path / "model", **{**padded, "dtype": "float32"})
    coarse = Served(tmp_path / "model", **{**padded, "dtype": "bfloat16"})
    assert precision(exact) == "f32"
    assert precision(coarse) == "bf16"
    assert coarse.ask(FINE)


def quantized(folder: Path) -> list[str]:
    """Return the names of what is computed in 8 bits."""
    import openvino  # noqa: PLC0415

    graph = openvino.Core().read_model(folder / "openvino_model.xml")
    ops = graph.get_ordered_ops()
    return [op.get_friendly_name() for op in ops if op.get_type_name() == "FakeQuantize"]
