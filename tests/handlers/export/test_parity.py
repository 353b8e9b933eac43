from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from handlers.errors import WrongCheckpoint
from handlers.export.manifest import Signature
from handlers.export.parity import check_parity, parity_batches
from handlers.export.parity_report import ParityReport, compare_outputs
from handlers.formats._graph import GraphModel, PaddedGraph
from handlers.runtime.model import ForwardOnlyModel
from tests import families


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


def test_a_report_is_written_as_a_sentence() -> None:
    text = str(ParityReport(225, 225, 0.9956, 0.0312))
    assert text == (
        "agrees with the checkpoint on 99.56% of 225 labels (225 rows), "
        "largest score difference 0.031"
    )


@pytest.mark.parametrize("window", [16, 128])
def test_a_row_is_longer_than_the_windows_of_the_config(window: int) -> None:
    module = families.module("modernbert", "token_classification", local_attention=window)
    batches = parity_batches(module, ("input_ids", "attention_mask"))
    assert max(batch["input_ids"].shape[1] for batch in batches) > window


def test_full_attention_for_layers_with_local_attention_does_not_pass() -> None:
    module = families.module("modernbert", "token_classification")
    graph = PaddedGraph(module, Signature(("input_ids", "attention_mask"), ("logits",)))
    model = GraphModel(graph, graph.signature)
    batches = parity_batches(module, graph.signature.inputs)
    with pytest.raises(WrongCheckpoint, match=r"^model\.pt: its logits differ"):
        check_parity(module, model, batches, "model.pt")


def test_a_graph_that_runs_only_the_shape_that_it_was_traced_with_is_refused() -> None:
    class Fixed(ForwardOnlyModel):
        def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            raise RuntimeError("shape '[6, 1, 16]' is invalid")

    module = families.module("bert", "token_classification")
    batches = parity_batches(module, ("input_ids", "attention_mask"))
    with pytest.raises(WrongCheckpoint, match="does not run a batch of 2 rows and 16 tokens"):
        check_parity(module, Fixed(), batches, "model.pt")
