from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from handlers.checkpoints.graph_inputs import TokenInputs
from handlers.errors import WrongCheckpoint
from handlers.export.manifest import Signature
from handlers.export.parity import check_parity
from handlers.export.parity_report import ParityReport, compare_outputs, wilson_interval
from handlers.formats._graph import GraphModel, PaddedGraph
from handlers.model import ForwardOnlyModel
from tests import families
from tests.sentences import refused


def test_a_text_is_one_decision() -> None:
    expected = [{"logits": np.array([2.0, 1.0])}, {"logits": np.array([0.0, 1.0])}]
    found = [{"logits": np.array([2.0, 1.0])}, {"logits": np.array([1.0, 0.0])}]
    result = compare_outputs(expected, found)
    assert (result.rows, result.decisions, result.label_agreement) == (2, 2, 0.5)
    assert result.largest_score_difference == pytest.approx(0.4621, abs=1e-4)


def test_each_token_is_a_decision_and_an_answer_is_two() -> None:
    tokens = [{"logits": np.eye(3)}]
    assert compare_outputs(tokens, tokens) == ParityReport(1, 3, 1.0, 0.0)
    ends = [{"start_logits": np.arange(4.0), "end_logits": np.arange(4.0)}]
    moved = [{"start_logits": np.arange(4.0), "end_logits": -np.arange(4.0)}]
    assert compare_outputs(ends, moved).decisions == 2
    assert compare_outputs(ends, moved).label_agreement == 0.5


def test_a_single_logit_is_compared_as_a_score() -> None:
    result = compare_outputs(
        [{"logits": np.array([3.2])}] * 2, [{"logits": np.array([value])} for value in (3.3, -9.0)]
    )
    assert result.label_agreement == 0.5
    assert result.largest_score_difference > 0.9


def test_each_independent_label_is_a_decision() -> None:
    expected, found = (
        [{"logits": np.array([3.0, 1.0, -1.0])}],
        [{"logits": np.array([3.0, -1.0, -1.0])}],
    )
    assert compare_outputs(expected, found, independent=True).label_agreement == pytest.approx(
        2 / 3
    )
    assert compare_outputs(expected, found).label_agreement == 1


@pytest.mark.parametrize("independent", [True, False])
def test_nan_agrees_with_no_value(independent: bool) -> None:
    broken = [{"logits": np.array([np.nan, np.nan])}]
    result = compare_outputs([{"logits": np.array([2.0, 1.0])}], broken, independent=independent)
    assert (result.label_agreement, result.largest_score_difference) == (0, 1)


def test_a_report_is_written_as_a_sentence_with_its_interval() -> None:
    text = str(ParityReport(120, 240, 236 / 240, 0.1213, close_calls=3))
    assert text == (
        "agrees with the checkpoint on 98.33% of 240 labels (95% interval 95.8% to 99.4%, 120 rows)"
        ", largest score difference 0.121; 3 of the 4 that differ are close calls"
    )


@pytest.mark.parametrize("window", [16, 128])
def test_a_row_is_longer_than_the_windows_of_the_config(window: int) -> None:
    module = families.module("modernbert", "token_classification", local_attention=window)
    batches = TokenInputs(("input_ids", "attention_mask")).batches(module)
    assert max(batch["input_ids"].shape[1] for batch in batches) > window


def test_full_attention_for_layers_with_local_attention_does_not_pass() -> None:
    module = families.module("modernbert", "token_classification")
    graph = PaddedGraph(module, Signature(("input_ids", "attention_mask"), ("logits",)))
    model = GraphModel(graph, graph.signature)
    batches = TokenInputs(graph.signature.inputs).batches(module)
    with refused(WrongCheckpoint, "model.pt", "logits"):
        check_parity(module, model, batches, "model.pt")


def test_a_graph_that_runs_only_the_shape_that_it_was_traced_with_is_refused() -> None:
    class Fixed(ForwardOnlyModel):
        def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            raise RuntimeError("shape '[6, 1, 16]' is invalid")

    module = families.module("bert", "token_classification")
    batches = TokenInputs(("input_ids", "attention_mask")).batches(module)
    with refused(WrongCheckpoint, 2, 16):
        check_parity(module, Fixed(), batches, "model.pt")


@pytest.mark.parametrize(
    ("share", "count", "interval"),
    [(0.5, 10, (0.2366, 0.7634)), (1.0, 400, (0.9905, 1.0)), (0.0, 10, (0.0, 0.2775))],
)
def test_the_interval_is_wilsons(share: float, count: int, interval: tuple[float, float]) -> None:
    assert wilson_interval(share, count) == pytest.approx(interval, abs=1e-4)


def test_changed_labels_are_named_with_place_and_margin() -> None:
    expected = [{"logits": np.array([0.0, row])} for row in (3.0, 0.01, 1.0)]
    found = [{"logits": np.array([0.0, 3.0])}] + [{"logits": np.array([1.0, 0.0])}] * 2
    report = compare_outputs(
        expected, found, places=["a", "b", "c"], labels=["NEGATIVE", "POSITIVE"]
    )
    assert report.describe_changes() == (
        "c: POSITIVE -> NEGATIVE (margin 0.462); b: POSITIVE -> NEGATIVE (margin 0.005)"
    )
    assert report.close_calls == 1


def test_the_five_clearest_changes_are_named_and_the_others_counted() -> None:
    rows = [{"logits": np.array([0.0, margin])} for margin in np.arange(1, 9)]
    report = compare_outputs(
        rows, [{"logits": np.array([1.0, 0.0])}] * 8, places=[f"line {row}" for row in range(8)]
    )
    named = report.describe_changes().split("; ")
    assert [each.partition(":")[0] for each in named[:5]] == [
        f"line {row}" for row in range(7, 2, -1)
    ]
    assert named[5:] == ["and 3 more"]


@pytest.mark.parametrize(
    ("expected", "found", "change"),
    [
        ({"logits": np.eye(3)}, np.eye(3)[[0, 1, 0]], "here, token 2: 2 -> 0 (margin 0.364)"),
        ({"logits": np.array([3.0])}, np.array([9.0]), "here: 3 -> 9"),
        ({"logits": np.array([3.0, 1.0])}, np.array([np.nan, 1.0]), "here: 0 -> not finite"),
    ],
    ids=["token", "regression", "NaN"],
)
def test_a_change_says_what_it_is_a_change_of(
    expected: dict[str, Any], found: Any, change: str
) -> None:
    report = compare_outputs([expected], [{"logits": found}], places=["here"])
    assert report.describe_changes().startswith(change)


def test_a_change_of_an_answer_names_the_end_that_moved() -> None:
    ends = {"start_logits": np.arange(4.0), "end_logits": np.arange(4.0)}
    moved = {**ends, "end_logits": -np.arange(4.0)}
    text = compare_outputs([ends], [moved], places=["here"]).describe_changes()
    assert text.startswith("here, end_logits: 3 -> 0 (margin ")


def test_a_changed_independent_label_is_named() -> None:
    report = compare_outputs(
        [{"logits": np.array([3.0, 1.0])}],
        [{"logits": np.array([3.0, -1.0])}],
        independent=True,
        places=["here"],
        labels=["rude", "loud"],
    )
    assert report.describe_changes() == "here: loud -> not loud (margin 0.462)"


def test_a_report_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "quality.json"
    old = {"rows": 9, "decisions": 9, "label_agreement": 1.0, "largest_score_difference": 0.1}
    path.write_text(json.dumps(old), encoding="utf-8")
    assert ParityReport.find(tmp_path) == ParityReport(9, 9, 1.0, 0.1)


def test_a_rejected_dtype_is_kept_in_the_file(tmp_path: Path) -> None:
    rejected = ParityReport(9, 9, 0.5, 0.1, dtype="bfloat16")
    report = ParityReport(9, 9, 1.0, 0.0, dtype="float32", rejected=rejected)
    report.write(tmp_path)
    assert ParityReport.find(tmp_path) == report
    assert "in bfloat16 it agrees with the checkpoint on 50.00%" in str(report)


@pytest.mark.parametrize("text", ['{"perplexity": 3}', "[]", "none"])
def test_another_file_of_this_name_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "quality.json").write_text(text, encoding="utf-8")
    assert ParityReport.find(tmp_path) is None


def test_a_folder_without_a_report_has_none(tmp_path: Path) -> None:
    assert ParityReport.find(tmp_path) is None
