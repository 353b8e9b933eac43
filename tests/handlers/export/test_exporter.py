"""How the agreement with float32 is measured, and what is served if it is too low."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.model_spec import ModelSpec
from hf_serve.handlers.checkpoints.probe_inputs import GraphInputs
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.export.exporter import encode, export_checkpoint, split
from hf_serve.handlers.export.fidelity import compare_with_float32
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.export.manifest import ExportManifest
from hf_serve.handlers.formats import export
from hf_serve.handlers.formats.pretrained import Format
from hf_serve.handlers.model import ForwardOnlyModel, Model
from hf_serve.handlers.types.request import Request, Sample
from tests import tiny
from tests.modes import each_mode
from tests.samples import requests_of
from tests.sentences import Sentence
from tests.serving import Served

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
MODE = "sequence_classification"

WITH, WITHOUT = "avx2 avx512_bf16", "avx2"  # flags of a processor
EASY, HARD = Request("It was good."), Request("It wasn't bad, far from it.")


@pytest.mark.parametrize("rows", [[EASY, HARD] * 20, [EASY] * 20 + [HARD] * 20])
def test_both_halves_have_rows_of_each_kind_in_any_order_of_the_file(
    rows: list[Request],
) -> None:
    for half in split(rows):
        assert len(half) == 20
        assert {row.inputs for row in half} == {EASY.inputs, HARD.inputs}


def test_a_single_row_is_used_for_calibration_and_measurement() -> None:
    assert split([EASY]) == ([EASY], [EASY])


def refusal(checkpoint: Path, target: Path, rows: Sequence[Request], **handler: object) -> str:
    """Return the message of the error with which rows are refused for a bfloat16 graph."""
    settings = {"mode": MODE, "save_mode": "torchscript", "dtype": "bfloat16", **handler}
    with pytest.raises(WrongConfig) as caught:
        export(checkpoint, ModelConfig.parse({"handler": settings}), target, rows)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        (Sample(7), ["inputs"]),
        (Sample("fine", {"top_k": "all"}), ["top_k"]),
        (Sample("secret " * 99), ["tokens"]),
    ],
)
def test_a_refused_row_is_named_by_its_line_and_not_quoted(
    checkpoint: Callable[..., Path], tmp_path: Path, row: Sample, facts: list[str]
) -> None:
    fine = Sample("fine", place="rows.jsonl, line 1")
    rows = [fine, replace(row, place="rows.jsonl, line 3"), fine]
    message = refusal(checkpoint(MODE), tmp_path, rows, truncation=False)
    assert message == Sentence("rows.jsonl", "line 3", *facts)
    assert message.endswith("); correct or remove this row.")
    assert "secret" not in message and ".)" not in message


def test_a_refused_row_without_a_file_is_reported(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    message = refusal(checkpoint(MODE), tmp_path, [Request(7)])
    assert message == Sentence("handler.calibration")


SAMPLES = [
    Sample(f"Ada sings {word} in the park", place=f"rows.jsonl, line {number}")
    for number, word in enumerate(["loud", "well", "a lot", "often", "today", "alone", "fine"], 1)
]


@pytest.fixture
def indecisive(tmp_path: Path) -> Path:
    """A classifier whose labels differ by less than bfloat16 can tell: it always says the first."""
    folder = tiny.write(tmp_path / "indecisive", MODE)
    weights = load_file(folder / "model.safetensors")
    head = weights["classifier.weight"]
    head[1:] = head[0] * 1.0001
    weights["classifier.bias"].zero_()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def measured(folder: Path, rows: Sequence[Request] = SAMPLES, **handler: Any) -> FidelityReport:
    """Measure or export a checkpoint in its own folder, as if that were its archive."""
    config = ModelConfig.parse({"handler": {"mode": MODE, **handler}})
    report = export(folder, config, folder, rows)
    assert report is not None
    assert report == FidelityReport.find(folder)
    return report


@pytest.mark.parametrize("flags", [WITH, WITHOUT])
def test_auto_is_measured_in_bfloat16_on_every_processor(
    tmp_path: Path, processor: Callable[[str], None], flags: str
) -> None:
    processor(flags)
    folder = tiny.write(tmp_path / "model", MODE)
    report = measured(folder, dtype="auto")
    assert (report.rows, report.dtype, report.rejected) == (7, "bfloat16", None)
    assert report.largest_score_difference > 0


@pytest.mark.parametrize("mode", each_mode())
def test_a_checkpoint_of_every_mode_is_measured_or_served_unmeasured(
    checkpoint: Callable[..., Path], tmp_path: Path, mode: str
) -> None:
    config = ModelConfig.parse({"handler": {"mode": mode, "dtype": "auto"}})
    rows = [Request(inputs, given) for inputs, given in requests_of(mode)[:2]]
    report = export(checkpoint(mode), config, tmp_path, rows)
    task = tasks.get(mode)
    compared = task.description.exports.one_forward and not task.description.generation.texts
    assert (report is not None) == compared
    assert FidelityReport.find(tmp_path) == report


@pytest.mark.parametrize(("flags", "dtype"), [(WITH, "bfloat16"), (WITHOUT, "float32")])
def test_the_description_has_the_dtype_of_this_machine_and_the_agreement(
    tmp_path: Path, processor: Callable[[str], None], flags: str, dtype: str
) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    report = measured(folder, dtype="auto")
    processor(flags)
    model = Served(folder, MODE, dtype="auto")
    described = model.engine.describe().as_json()
    assert described["dtype"] == dtype == _computed(model)
    assert described["agreement"] == report.as_json()
    assert described["agreement"]["dtype"] == "bfloat16"
    assert described["agreement"]["interval"] == list(report.interval)


def test_an_archive_without_a_measurement_is_described_without_one(served: Any) -> None:
    assert served(MODE).engine.describe().as_json()["agreement"] is None


def test_auto_is_float32_if_bfloat16_changes_labels(
    indecisive: Path, processor: Callable[[str], None]
) -> None:
    report = measured(indecisive, dtype="auto")
    assert (report.dtype, report.label_agreement) == ("float32", 1)
    assert report.rejected is not None
    assert report.rejected.dtype == "bfloat16"
    assert report.rejected.label_agreement < 0.99
    processor(WITH)
    model = Served(indecisive, MODE, dtype="auto")
    described = model.engine.describe().as_json()
    assert described["dtype"] == "float32" == _computed(model)
    assert described["agreement"]["rejected"]["dtype"] == "bfloat16"


def test_a_graph_is_exported_in_float32_if_bfloat16_changes_labels(
    indecisive: Path, processor: Callable[[str], None]
) -> None:
    processor(WITH)
    report = measured(indecisive, dtype="auto", save_mode="torchscript")
    assert report.dtype == ExportManifest.read(indecisive, ["logits"]).dtype == "float32"
    assert report.rejected is not None
    model = Served(indecisive, MODE, dtype="auto", save_mode="torchscript")
    assert model.engine.describe().dtype == "float32"


def test_a_checkpoint_is_refused_only_if_the_yaml_sets_min_agreement(
    indecisive: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report = measured(indecisive, dtype="bfloat16")
    assert report.label_agreement < 0.99
    assert "In bfloat16 the model agrees with the checkpoint on " in caplog.text


def test_a_model_that_generates_is_measured_if_the_yaml_asks_for_it(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", "text_generation")
    keys = {"mode": "text_generation", "dtype": "bfloat16"}
    plain, asked = ({"handler": {**keys, **more}} for more in ({}, {"min_agreement": 0.01}))
    assert export(folder, ModelConfig.parse(plain), folder, [Request("Once")]) is None
    assert export(folder, ModelConfig.parse(asked), folder, [Request("Once")]) is not None


@pytest.mark.parametrize("save_mode", ["pretrained", "torchscript"])
def test_a_dtype_that_changes_labels_is_refused_with_the_rows(
    indecisive: Path, save_mode: str
) -> None:
    with pytest.raises(WrongCheckpoint) as caught:
        measured(indecisive, dtype="bfloat16", save_mode=save_mode, min_agreement=0.99)
    message = str(caught.value)
    assert message.startswith(f"{save_mode} model: agrees with the checkpoint on ")
    assert "95% interval" in message
    assert "handler.min_agreement is 0.99; the labels that differ most clearly: " in message
    changed = re.findall(r"rows\.jsonl, line (\d): (\w+) -> (\w+) \(margin 0\.000\)", message)
    assert changed
    assert all(expected != found for _, expected, found in changed)
    assert "sings" not in message


@dataclass
class Quantizing:
    """A stand-in for a format: its models have other labels until fewer blocks are quantized."""

    specs: list[ModelSpec] = field(default_factory=list)

    def is_lossy(self, config: ModelConfig) -> bool:
        return True

    def computes_in(self, dtype: str) -> str:
        return dtype

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        self.specs.append(spec)

    def load(self, spec: ModelSpec) -> Model:
        exact = Format().load(self.specs[-1].in_float32())
        return exact if len(self.specs) > 1 else Inverted(exact)


class Inverted(ForwardOnlyModel):
    def __init__(self, model: Model) -> None:
        self._model = model

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return {name: -output for name, output in self._model.forward(batch).items()}


@pytest.mark.parametrize(("dtype", "second"), [("auto", "float32"), ("bfloat16", "bfloat16")])
def test_a_quantized_model_that_changes_labels_is_exported_again_more_precisely(
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    processor: Callable[[str], None],
    dtype: str,
    second: str,
) -> None:
    processor(WITH)
    handler = {"mode": MODE, "save_mode": "openvino", "quantization": "int8", "dtype": dtype}
    config, quantizing = ModelConfig.parse({"handler": handler}), Quantizing()
    report = export_checkpoint(
        quantizing, Format().load, checkpoint(MODE), config, tmp_path, SAMPLES
    )
    handlers = [spec.config.handler for spec in quantizing.specs]
    assert [each.dtype for each in handlers] == [dtype, second]
    assert [each.min_agreement for each in handlers] == [0.99, 0.995]
    assert report is not None
    assert (report.label_agreement, report.rows) == (1, 3)


@pytest.mark.parametrize(
    "handler",
    [
        {"dtype": "float32"},
        {"dtype": "bfloat16", "min_agreement": 0},
        {"dtype": "auto", "allow_random_head": True},
        {"dtype": "auto", "device_map": {"": "cpu"}},
    ],
    ids=["exact", "not required", "random head", "distributed"],
)
def test_what_cannot_differ_or_be_compared_is_not_measured(
    checkpoint: Callable[..., Path], tmp_path: Path, handler: dict[str, Any]
) -> None:
    config = ModelConfig.parse({"handler": {"mode": MODE, **handler}})
    assert export(checkpoint(MODE), config, tmp_path, SAMPLES) is None
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_without_samples_is_not_measured(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    config = ModelConfig.parse({"handler": {"mode": MODE, "dtype": "auto"}})
    assert export(checkpoint(MODE), config, tmp_path) is None


def test_prompts_of_different_lengths_are_compared_as_each_alone(
    checkpoint: Callable[..., Path],
) -> None:
    """Padding must not move the positions of a decoder; otherwise the reference is wrong."""
    folder, mode = checkpoint("text_generation"), "text_generation"
    handler = HandlerSection(mode=mode)
    task = tasks.get(mode)(Checkpoint.read(folder, handler), handler)
    config = ModelConfig.parse({"handler": {"mode": mode}})
    spec = ModelSpec(
        folder,
        task.checkpoint,
        task.auto_class,
        task.description.outputs,
        config,
        torch.device("cpu"),
    )
    model = Format().load(spec)

    class Alone(ForwardOnlyModel):
        def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            vocabulary = task.checkpoint.config.vocab_size
            outputs = torch.zeros(*batch["input_ids"].shape, vocabulary)
            for row, mask in enumerate(batch["attention_mask"].bool()):
                ids = batch["input_ids"][row, mask][None]
                outputs[row, mask] = model.forward({"input_ids": ids})["logits"][0]
            return {"logits": outputs}

    rows = encode(task, [Request("Ada sings in the park today"), Request("A film about Ada")])
    report = compare_with_float32(task, Alone(), model, rows)
    assert report.label_agreement == 1
    assert report.largest_score_difference < 1e-4


def _computed(served: Served) -> str:
    model: Any = served.engine.model
    return str(model.module.dtype).removeprefix("torch.")
