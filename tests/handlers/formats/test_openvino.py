"""OpenVINO beyond the contract of formats: precision and quantization."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import ConfigError, WrongCheckpoint, WrongConfig
from hf_serve.handlers.export.fidelity import compare_outputs
from hf_serve.handlers.export.fidelity_report import FILE as QUALITY
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.export.manifest import ExportManifest
from hf_serve.handlers.export.quantize import Quantized
from hf_serve.handlers.formats import check_config, export
from hf_serve.handlers.formats.openvino import _compile_settings, min_running
from hf_serve.handlers.types.request import Request
from hf_serve.scripts.installation import ROOT
from tests import families, tiny
from tests.samples import FINE, requests_of
from tests.sentences import refused
from tests.serving import Served

# Not there beside the newest transformers.
openvino = pytest.importorskip("openvino")

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


def export_to(folder: Path, checkpoint: Path, **settings: Any) -> FidelityReport | None:
    shutil.copytree(checkpoint, folder)
    config = ModelConfig.parse({"handler": settings})
    found = export(folder, config, folder, samples(settings["mode"]))
    (folder / "model.safetensors").unlink()
    return found


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        (CLASSIFIES, "int8"),
        pytest.param(CLASSIFIES, "int8_weights", marks=pytest.mark.nightly),
        pytest.param("token_classification", "int4_weights", marks=pytest.mark.nightly),
        pytest.param("question_answering", "int8", marks=pytest.mark.nightly),
        pytest.param(GENERATES, "int4_weights", marks=pytest.mark.nightly),
    ],
)
def test_a_quantized_model_is_smaller_measured_and_answers(
    checkpoint: Callable[..., Path], tmp_path: Path, mode: str, how: str
) -> None:
    settings = handler(mode, quantization=how)
    found = export_to(tmp_path / "small", checkpoint(mode), **settings)
    assert found is not None
    assert found == FidelityReport.read(tmp_path / "small" / QUALITY)
    assert found.rows
    assert 0 < found.label_agreement <= 1
    small = (tmp_path / "small" / "openvino_model.bin").stat().st_size
    assert small < 0.6 * (checkpoint(mode) / "model.safetensors").stat().st_size
    model = Served(tmp_path / "small", **settings)
    for inputs, given in requests_of(mode):
        model.ask(inputs, **given)


@pytest.mark.parametrize(
    ("family", "mode", "problem"),
    [
        pytest.param("deberta-v2", "feature_extraction", None, marks=pytest.mark.nightly),
        # optimum-intel exports the encoder in place of the model.
        ("bart", "feature_extraction", "last_hidden_state differ"),
        pytest.param("mbart", "sentence_embedding", "exported", marks=pytest.mark.nightly),
        pytest.param("mbart", CLASSIFIES, "batch of 2", marks=pytest.mark.nightly),
    ],
)
def test_an_export_has_the_outputs_of_its_checkpoint_or_is_refused(
    tmp_path: Path, family: str, mode: str, problem: str | None
) -> None:
    module = families.module(family, mode)
    families.save(module, tmp_path)
    config = ModelConfig.parse({"handler": {**handler(mode), "dtype": "float32"}})
    if problem:
        with pytest.raises(WrongCheckpoint, match=f"{problem}.*; use save_mode: pretrained"):
            export(tmp_path, config, tmp_path)
        return
    expected = Served(tmp_path, mode).ask("w7 w8 w9")
    export(tmp_path, config, tmp_path)
    np.testing.assert_allclose(
        Served(tmp_path, mode, save_mode="openvino").ask("w7 w8 w9"), expected, atol=1e-4
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("agreements", "quantization"),
    [
        ([0.9, 1.0], "int8_weights"),
        pytest.param([0.9, 1.0], "int8", marks=pytest.mark.nightly),
        pytest.param([1.0], "int8", marks=pytest.mark.nightly),
    ],
)
def test_blocks_stay_in_float_until_labels_agree(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: Any,
    processor: Callable[[str], None],
    agreements: list[float],
    quantization: str,
) -> None:
    found = iter(FidelityReport(9, 9, share, 0.0) for share in agreements)
    monkeypatch.setattr(
        "hf_serve.handlers.formats.openvino.compare_outputs", lambda *_, **__: next(found)
    )
    perfect = FidelityReport(9, 9, 1.0, 0.0)
    monkeypatch.setattr(
        "hf_serve.handlers.export.fidelity.compare_outputs", lambda *_, **__: perfect
    )
    settings = handler(CLASSIFIES, quantization=quantization, min_agreement=0.99)
    export_to(tmp_path / "small", checkpoint(CLASSIFIES), **settings)
    assert next(found, None) is None
    export_to(tmp_path / "smallest", checkpoint(CLASSIFIES), **{**settings, "min_agreement": 0})
    sizes = [
        (tmp_path / name / "openvino_model.bin").stat().st_size for name in ("small", "smallest")
    ]
    assert (sizes[0] > sizes[1]) == (len(agreements) > 1)


@pytest.mark.parametrize(
    ("agreements", "dtype", "rejected"),
    [
        ([0.5, 1.0], "float32", "bfloat16"),
        pytest.param([1.0], "bfloat16", None, marks=pytest.mark.nightly),
    ],
    ids=["bfloat16 changes labels", "bfloat16 changes none"],
)
def test_auto_is_the_dtype_that_was_measured(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: Any,
    processor: Callable[[str], None],
    agreements: list[float],
    dtype: str,
    rejected: str | None,
) -> None:
    processor("avx512_bf16")
    found = iter(FidelityReport(9, 9, share, 0.0) for share in agreements)
    monkeypatch.setattr(
        "hf_serve.handlers.export.fidelity.compare_outputs", lambda *_, **__: next(found)
    )
    settings = {**handler(CLASSIFIES), "dtype": "auto", "min_agreement": 0.99}
    report = export_to(tmp_path / "model", checkpoint(CLASSIFIES), **settings)
    assert report is not None
    assert report.dtype == dtype
    assert (report.rejected and report.rejected.dtype) == rejected
    model = Served(tmp_path / "model", **settings)
    compiled: Any = model.engine.model
    hint = compiled._compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    assert hint in ({"f32"} if dtype == "float32" else {"f32", "bf16"})
    assert model.engine.describe().dtype == dtype
    # A processor without bfloat16 computes in float32.
    processor("avx2")
    assert Served(tmp_path / "model", **settings).engine.describe().dtype == "float32"


def test_threads_are_not_pinned_to_cores(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """OpenVINO pins the threads of each process from the first core on, whatever others use."""
    export_to(tmp_path / "model", checkpoint(CLASSIFIES), **handler(CLASSIFIES))
    served: Any = Served(tmp_path / "model", **handler(CLASSIFIES)).engine.model
    assert served._compiled.get_property("ENABLE_CPU_PINNING") is False


@pytest.mark.nightly
@pytest.mark.parametrize(
    "more",
    [{}, {"BetterTransformer": False}],
    ids=["packed", "padded"],
)
@pytest.mark.parametrize("problem", ["multi_label_classification", None])
def test_int8_and_the_export_are_compared_by_the_same_rule(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: Any,
    problem: str | None,
    more: dict[str, Any],
) -> None:
    comparisons: list[tuple[str, bool]] = []
    for module in ("formats.openvino", "export.fidelity"):

        def compared(*both: Any, module: str = module, **given: Any) -> FidelityReport:
            comparisons.append((module, given["independent"]))
            return compare_outputs(*both, **given)

        monkeypatch.setattr(f"handlers.{module}.compare_outputs", compared)
    settings = handler(CLASSIFIES, quantization="int8", **{"min_agreement": 0.01, **more})
    export_to(tmp_path / "small", checkpoint(CLASSIFIES, problem_type=problem), **settings)
    independent = problem is not None
    assert set(comparisons) == {
        ("formats.openvino", independent),
        ("export.fidelity", independent),
    }


@pytest.mark.parametrize(
    ("dtype", "flags", "hints"),
    [
        ("bfloat16", "avx2", {"bfloat16": "bf16"}),
        ("auto", "amx_bf16", {"bfloat16": "bf16", "float32": "f32"}),
        pytest.param("auto", "avx2", {"float32": "f32"}, marks=pytest.mark.nightly),
    ],
)
def test_int8_is_measured_in_the_dtypes_that_it_may_be_served_in(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: Any,
    processor: Callable[[str], None],
    dtype: str,
    flags: str,
    hints: dict[str, str],
) -> None:
    processor(flags)
    targets: list[Any] = []

    def recorded(graph: Any, _: Any, __: Any, target: Any, **packages: Any) -> Quantized:
        targets.append(target)
        return Quantized(graph, "float32")

    monkeypatch.setattr("hf_serve.handlers.formats.openvino.quantize", recorded)
    settings = handler(CLASSIFIES, quantization="int8", dtype=dtype)
    export_to(tmp_path / "small", checkpoint(CLASSIFIES), **settings)
    (target,) = targets
    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "ENABLE_CPU_PINNING": False}
    assert target.settings == {
        name: {**threads, "INFERENCE_PRECISION_HINT": hint} for name, hint in hints.items()
    }
    manifest = ExportManifest.read(tmp_path / "small", ["logits"])
    assert manifest.dtype == "float32"


def test_a_model_that_agrees_too_little_is_refused(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    bad = FidelityReport(10, 10, 0.9, 0.4)
    monkeypatch.setattr("hf_serve.handlers.export.fidelity.compare_outputs", lambda *_, **__: bad)
    settings = handler(CLASSIFIES, dtype="bfloat16", min_agreement=0.95)
    with refused(WrongCheckpoint, "90.00%", 10, "min_agreement", 0.95):
        export_to(tmp_path / "bad", checkpoint(CLASSIFIES), **settings)


def test_int8_needs_rows_to_calibrate_with(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    config = ModelConfig.parse({"handler": handler(CLASSIFIES, quantization="int8")})
    with refused(WrongConfig):
        export(checkpoint(CLASSIFIES), config, tmp_path)


@pytest.mark.parametrize("rows", [[], [Request("a long text " * 90)]], ids=["none", "too long"])
def test_a_lossy_export_needs_rows_to_measure(
    checkpoint: Callable[..., Path], tmp_path: Path, rows: list[Request]
) -> None:
    settings = handler(CLASSIFIES, quantization="int8_weights", truncation=False)
    config = ModelConfig.parse({"handler": settings})
    with refused(WrongConfig, "handler.calibration"):
        export(checkpoint(CLASSIFIES), config, tmp_path, rows)


def test_the_error_for_an_export_without_packages_names_the_command(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    config = ModelConfig.parse({"handler": handler(CLASSIFIES)})
    with refused(WrongConfig, "pip install"):
        export(checkpoint(CLASSIFIES), config, tmp_path)


def test_a_calibration_row_that_the_mode_refuses_is_named(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    config = ModelConfig.parse({"handler": handler(CLASSIFIES, quantization="int8")})
    with refused(WrongConfig, "handler.calibration"):
        export(checkpoint(CLASSIFIES), config, tmp_path, [Request(3)])


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"mode": CLASSIFIES, "quantization": "int8"}, ["save_mode: openvino"]),
        (handler(GENERATES, quantization="int8"), ["int8_weights", "int4_weights"]),
    ],
)
def test_an_unsupported_quantization_is_refused(settings: dict[str, Any], facts: list[str]) -> None:
    with refused(WrongConfig, *facts):
        check_config(ModelConfig.parse({"handler": settings}))


def test_the_error_for_a_load_without_packages_names_the_command(
    checkpoint: Callable[..., Path], monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with refused(ConfigError, "pip install"):
        Served(checkpoint(CLASSIFIES), **handler(CLASSIFIES))


@pytest.mark.nightly
def test_the_yaml_sets_the_precision(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    padded = handler(CLASSIFIES, BetterTransformer=False)
    export_to(tmp_path / "model", checkpoint(CLASSIFIES), **padded)
    exact = Served(tmp_path / "model", **{**padded, "dtype": "float32"})
    coarse = Served(tmp_path / "model", **{**padded, "dtype": "bfloat16"})
    assert precision(exact) == "f32"
    assert precision(coarse) == "bf16"
    assert coarse.ask(FINE)


def layers(*, gated: bool) -> Any:
    """Return a graph of two layers: the activation of one is multiplied by the other, or added."""
    ops = openvino.opset13
    inputs = ops.parameter([-1, 8], np.float32)
    one, other = (ops.matmul(inputs, np.full((8, 8), n, np.float32), False, True) for n in (1, 2))
    combine = ops.multiply if gated else ops.add
    return openvino.Model([combine(ops.swish(one), other)], [inputs])


@pytest.mark.parametrize(
    ("gated", "flags", "threads", "hint"),
    [
        (True, "avx512_bf16 amx_bf16", 1, "f32"),
        (True, "avx512_bf16 amx_bf16", 2, "bf16"),
        (True, "avx512_bf16", 1, "bf16"),
        (False, "avx512_bf16 amx_bf16", 1, "bf16"),
    ],
)
def test_gated_layers_are_in_float32_with_one_thread_and_amx(
    processor: Callable[[str], None],
    gated: bool,
    flags: str,
    threads: int,
    hint: str,
    monkeypatch: Any,
) -> None:
    """In bfloat16, OpenVINO 2026.4 divides by zero there, which ends the process."""
    processor(flags)
    monkeypatch.setattr("hf_serve.handlers.formats.openvino.available_cores", lambda: threads)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    settings = _compile_settings("bfloat16", layers(gated=gated))
    assert settings["INFERENCE_PRECISION_HINT"] == hint


@pytest.mark.nightly
def test_llama_loads_with_one_thread_in_bfloat16(tmp_path: Path) -> None:
    """It ends the process on a processor with AMX if its layers are not found to be gated."""
    folder = tiny.write(tmp_path / "checkpoint", GENERATES, family="Llama")
    export_to(tmp_path / "exported", folder, **handler(GENERATES, dtype="bfloat16"))
    code = (
        "import pathlib, sys, torch; from tests.serving import Served; torch.set_num_threads(1);"
        "settings = {'save_mode': 'openvino', 'dtype': 'bfloat16'};"
        "Served(pathlib.Path(sys.argv[1]), 'text_generation', **settings).ask('a fox')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "exported")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("dtype", "threads", "expected"),
    [
        ("bfloat16", 1, 1),
        ("bfloat16", 2, 2),
        ("bfloat16", 4, 4),
        ("bfloat16", 5, 1),
        ("float32", 2, 1),
    ],
)
def test_a_lone_text_in_bfloat16_has_dummy_texts_on_few_threads(
    dtype: str, threads: int, expected: int
) -> None:
    assert min_running(dtype, threads) == expected
