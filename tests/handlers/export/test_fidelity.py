from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_serve.handlers.checkpoints.probe_inputs import TokenInputs
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.export import exporter
from hf_serve.handlers.export.exporter import encode
from hf_serve.handlers.export.fidelity import (
    MAX_NEW_TOKENS,
    MAX_TEXTS,
    PlacedRow,
    check_fidelity,
    compare_cached_texts,
    compare_outputs,
    compare_texts,
    compare_vectors,
    rank_correlation,
)
from hf_serve.handlers.export.fidelity_report import FidelityReport, TextFidelity, wilson_interval
from hf_serve.handlers.export.manifest import Signature
from hf_serve.handlers.formats import export
from hf_serve.handlers.formats.graph import GraphModel, PaddedGraph
from hf_serve.handlers.generation.generator import Prompt
from hf_serve.handlers.model import ForwardOnlyModel
from hf_serve.handlers.types.request import Request
from tests import families, tiny
from tests.samples import FINE, LONG, ODD
from tests.sentences import refused
from tests.serving import Served


def test_a_text_is_one_decision() -> None:
    expected = [{"logits": np.array([2.0, 1.0])}, {"logits": np.array([0.0, 1.0])}]
    found = [{"logits": np.array([2.0, 1.0])}, {"logits": np.array([1.0, 0.0])}]
    result = compare_outputs(expected, found)
    assert (result.rows, result.decisions, result.label_agreement) == (2, 2, 0.5)
    assert result.largest_score_difference == pytest.approx(0.4621, abs=1e-4)


def test_each_token_is_a_decision_and_an_answer_is_two() -> None:
    tokens = [{"logits": np.eye(3)}]
    assert compare_outputs(tokens, tokens) == FidelityReport(1, 3, 1.0, 0.0)
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
    text = str(FidelityReport(120, 240, 236 / 240, 0.1213, close_calls=3))
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
        check_fidelity(module, model, batches, "model.pt")


def test_a_graph_that_runs_only_the_shape_that_it_was_traced_with_is_refused() -> None:
    class Fixed(ForwardOnlyModel):
        def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            raise RuntimeError("shape '[6, 1, 16]' is invalid")

    module = families.module("bert", "token_classification")
    batches = TokenInputs(("input_ids", "attention_mask")).batches(module)
    with refused(WrongCheckpoint, 2, 16):
        check_fidelity(module, Fixed(), batches, "model.pt")


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
    assert FidelityReport.find(tmp_path) == FidelityReport(9, 9, 1.0, 0.1)


def test_a_rejected_dtype_is_kept_in_the_file(tmp_path: Path) -> None:
    rejected = FidelityReport(9, 9, 0.5, 0.1, dtype="bfloat16")
    report = FidelityReport(9, 9, 1.0, 0.0, dtype="float32", rejected=rejected)
    report.write(tmp_path)
    assert FidelityReport.find(tmp_path) == report
    assert "in bfloat16 it agrees with the checkpoint on 50.00%" in str(report)


@pytest.mark.parametrize("text", ['{"perplexity": 3}', "[]", "none"])
def test_another_file_of_this_name_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "quality.json").write_text(text, encoding="utf-8")
    assert FidelityReport.find(tmp_path) is None


def test_a_folder_without_a_report_has_none(tmp_path: Path) -> None:
    assert FidelityReport.find(tmp_path) is None


MODE = "text_generation"
ROWS = [Request(f"Once upon a time there were {number} foxes") for number in range(MAX_TEXTS + 4)]


def engine_of(served: Served, rows: list[Request]) -> tuple[Engine, list[PlacedRow]]:
    return served.engine, encode(served.engine.task, rows)


def test_a_model_agrees_with_itself_on_the_first_texts(served: Callable[..., Served]) -> None:
    engine, rows = engine_of(served(MODE), ROWS)
    report = compare_texts(engine.task, engine.model, engine.model, rows)
    assert report == TextFidelity(MAX_TEXTS, MAX_TEXTS, MAX_TEXTS * MAX_NEW_TOKENS, 1.0)


def test_texts_that_begin_alike_are_compared_twice_with_the_cache_of_their_beginning(
    served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, rows = engine_of(served(MODE), ROWS[:3])
    prompts = list[list[int]]()
    run = engine.task.run

    def note(model: Any, batch: list[Any], meter: Any) -> Any:
        prompts.extend(prompt.features["input_ids"] for prompt in batch)
        return run(model, batch, meter)

    monkeypatch.setattr(engine.task, "run", note)
    report = compare_cached_texts(engine.task, engine.model, engine.model, rows)
    assert report == TextFidelity(6, 6, 6 * MAX_NEW_TOKENS, 1.0)
    halves = [(len(each.row.features["input_ids"]) + 1) // 2 for each in rows]
    longest = (engine.task.checkpoint.limit or 0) - MAX_NEW_TOKENS
    assert len(prompts) == 9
    assert len({tuple(each[: longest - max(halves)]) for each in prompts}) == 1
    assert max(map(len, prompts)) == longest


def test_the_tokens_after_the_first_that_differs_do_not_count(
    served: Callable[..., Served],
) -> None:
    engine, rows = engine_of(served(MODE), ROWS[:4])
    changed = engine.model.generate

    class Other(type(engine.model)):  # type: ignore[misc]
        """Changes the tenth new token of each text."""

        def __init__(self) -> None:
            self.__dict__.update(vars(engine.model))
            # A patch of a shared model leaves its method behind as an attribute.
            self.__dict__.pop("generate", None)

        def generate(self, batch: Any, config: Any, **extra: Any) -> Any:
            ids = changed(batch, config, **extra).clone()
            ids[:, batch["input_ids"].shape[1] + 9] += 1
            return ids

    report = compare_texts(engine.task, engine.model, Other(), rows)
    assert report == TextFidelity(4, 0, 40, 0.9)


def test_no_more_texts_run_side_by_side_than_the_yaml_allows(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, rows = engine_of(Served(checkpoint(MODE), MODE, max_num_seqs=3), ROWS[:7])
    together: list[int] = []
    run = engine.task.run

    def count(model: Any, prompts: list[Prompt], meter: Any) -> Any:
        together.append(len(prompts))
        return run(model, prompts, meter)

    monkeypatch.setattr(engine.task, "run", count)
    assert compare_texts(engine.task, engine.model, engine.model, rows).texts == 7
    assert max(together) == 3


def test_parameters_of_the_yaml_do_not_matter(checkpoint: Callable[..., Path]) -> None:
    sampled = {"do_sample": True, "max_new_tokens": 2, "stop": "e"}
    engine, rows = engine_of(Served(checkpoint(MODE), MODE, parameters=sampled), ROWS[:2])
    report = compare_texts(engine.task, engine.model, engine.model, rows)
    assert (report.tokens, report.token_agreement) == (4, 1.0)


CONTINUOUS: dict[str, Any] = {
    "continuousBatching": True,
    "handler": {"mode": MODE, "save_mode": "openvino", "min_agreement": 0.9},
}


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("cached", [False, True])
def test_texts_of_an_exact_export_with_continuous_batching_are_compared(
    tmp_path: Path, *, cached: bool
) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    handler = {**CONTINUOUS["handler"], "enable_prefix_caching": cached}
    config = ModelConfig.parse({**CONTINUOUS, "handler": handler})
    report = export(folder, config, folder, ROWS[:3])
    assert report is not None
    assert report.generated == TextFidelity(3, 3, 3 * MAX_NEW_TOKENS, 1.0)
    assert report.cached == (TextFidelity(6, 6, 6 * MAX_NEW_TOKENS, 1.0) if cached else None)
    assert report == FidelityReport.find(folder)


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_an_export_whose_texts_differ_is_refused(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    different = TextFidelity(16, 0, 80, 0.8)
    monkeypatch.setattr(exporter, "compare_texts", lambda *_: different)
    with pytest.raises(WrongCheckpoint) as caught:
        export(checkpoint(MODE), ModelConfig.parse(CONTINUOUS), tmp_path, ROWS[:2])
    assert f"; {different}; handler.min_agreement is 0.9; " in str(caught.value)
    assert not (tmp_path / "quality.json").exists()


def test_the_report_has_the_texts_in_its_file_and_its_sentence(tmp_path: Path) -> None:
    report = replace(
        FidelityReport(9, 9, 1.0, 0.1),
        generated=TextFidelity(4, 3, 50, 0.98),
        cached=TextFidelity(8, 7, 100, 0.99),
    )
    report.write(tmp_path)
    assert FidelityReport.find(tmp_path) == report
    assert "have 98.00% of 50 tokens of `generate` (3 of 4 texts are equal)" in str(report)
    assert (
        "texts that begin alike and share its cache have 99.00% of 100 tokens of the texts without"
        in str(report)
    )


@pytest.mark.parametrize(
    ("labels", "tokens", "reached"),
    [(0.995, 0.985, True), (0.995, 0.95, False), (0.98, 1.0, False)],
)
def test_labels_reach_the_minimum_and_tokens_as_far_as_few_of_them_tell(
    labels: float, tokens: float, reached: bool
) -> None:
    texts = TextFidelity(16, 6, 480, tokens)
    report = FidelityReport(200, 9000, labels, 0.1)
    assert replace(report, generated=texts).reaches(0.99) == reached
    assert replace(report, cached=texts).reaches(0.99) == reached


def test_the_interval_of_the_tokens_may_end_at_the_minimum() -> None:
    agreement = TextFidelity(16, 6, 480, 0.98)
    report = FidelityReport(200, 9000, 1.0, 0.1, generated=agreement)
    minimum = agreement.interval[1]
    assert report.reaches(minimum)
    assert not report.reaches(minimum + 1e-9)


EMBEDDING = "sentence_embedding"


def vectors(count: int = 20, size: int = 8) -> Any:
    return np.random.default_rng(0).normal(size=(count, size))


def report(expected: Any, found: Any) -> FidelityReport:
    pairs = [[{"sentence_embedding": each} for each in rows] for rows in (expected, found)]
    return compare_vectors(*pairs)


def test_vectors_of_other_lengths_agree() -> None:
    found = report(vectors(), 3 * vectors()).vectors
    assert found is not None
    assert found.cosine == pytest.approx(1)
    assert found.lowest_cosine == pytest.approx(1)
    assert found.rank_correlation == pytest.approx(1)
    assert found.pairs == 190


def test_one_vector_that_is_turned_is_the_lowest_cosine() -> None:
    turned = vectors()
    turned[3] *= -1
    found = report(vectors(), turned)
    assert found.vectors is not None
    assert found.vectors.lowest_cosine == pytest.approx(-1)
    assert found.vectors.cosine == pytest.approx(0.9)
    assert found.agreement < 0.91
    assert not found.reaches(0.99)


def test_similarities_in_another_order_do_not_agree() -> None:
    """All cosines are close to 1, but the directions that tell texts apart are lost."""
    common = np.full(8, 100.0)
    found = report(vectors() + common, vectors()[::-1] + common)
    assert found.vectors is not None
    assert found.vectors.cosine > 0.99
    assert found.agreement < 0.5


def test_vectors_that_are_not_finite_agree_with_nothing() -> None:
    broken = vectors()
    broken[0, 0] = np.nan
    found = report(vectors(), broken).vectors
    assert found is not None
    assert found.lowest_cosine == 0


def test_each_token_is_compared() -> None:
    tokens = vectors(12).reshape(3, 4, 8)
    found = report(tokens, tokens)
    assert found.rows == 3
    assert found.vectors is not None and found.vectors.pairs == 3


def test_rank_correlation_is_spearmans() -> None:
    first, second = vectors(1, 50)[0], vectors(2, 50)[1]
    assert rank_correlation(first, np.exp(first)) == pytest.approx(1)
    assert rank_correlation(first, -first) == pytest.approx(-1)
    differences = np.argsort(np.argsort(first)) - np.argsort(np.argsort(second))
    expected = 1 - 6 * (differences**2).sum() / (50 * (50**2 - 1))
    assert rank_correlation(first, second) == pytest.approx(expected)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = report(vectors(), vectors() + 0.1)
    found.write(tmp_path)
    assert FidelityReport.find(tmp_path) == found
    assert "rank correlation" in str(found)


WORDS = f"{FINE} {ODD} {LONG}".split()
TEXTS = [Request(" ".join(WORDS[number : number + 9])) for number in range(0, 80, 2)]
INT8 = {"mode": EMBEDDING, "save_mode": "openvino", "quantization": "int8"}


@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore")
def test_an_int8_export_records_cosines_and_the_order_of_similarities(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", EMBEDDING)
    config = ModelConfig.parse({"handler": {**INT8, "min_agreement": 0.5}})
    report = export(folder, config, folder, TEXTS)
    assert report is not None and report == FidelityReport.find(folder)
    assert report.vectors is not None
    assert 0.5 < report.vectors.cosine < 1
    assert report.vectors.pairs > 100
    assert report.agreement == min(report.vectors.cosine, report.vectors.rank_correlation)


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore")
def test_an_int8_export_below_the_minimum_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", EMBEDDING)
    config = ModelConfig.parse({"handler": {**INT8, "min_agreement": 0.99999999}})
    with refused(WrongCheckpoint, "handler.min_agreement", 1):
        export(folder, config, folder, TEXTS)
    assert not (folder / "quality.json").exists()
