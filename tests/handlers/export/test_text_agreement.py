"""How greedy texts are compared, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handlers.config.model_config import ModelConfig
from handlers.engine import Engine
from handlers.errors import WrongCheckpoint
from handlers.export import exporter
from handlers.export.evaluation import PlacedRow, encode
from handlers.export.parity_report import ParityReport, TextAgreement
from handlers.export.text_agreement import MAX_NEW_TOKENS, MAX_TEXTS, compare_texts
from handlers.formats import export
from handlers.generation.generator import Prompt
from handlers.types.request import Request
from tests import tiny
from tests.serving import Served

MODE = "text_generation"
ROWS = [Request(f"Once upon a time there were {number} foxes") for number in range(MAX_TEXTS + 4)]


def engine_of(served: Served, rows: list[Request]) -> tuple[Engine, list[PlacedRow]]:
    return served.engine, encode(served.engine.task, rows)


def test_a_model_agrees_with_itself_on_the_first_texts(served: Callable[..., Served]) -> None:
    engine, rows = engine_of(served(MODE), ROWS)
    report = compare_texts(engine.task, engine.model, engine.model, rows)
    assert report == TextAgreement(MAX_TEXTS, MAX_TEXTS, MAX_TEXTS * MAX_NEW_TOKENS, 1.0)


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
    assert report == TextAgreement(4, 0, 40, 0.9)


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


CONTINUOUS = {
    "continuousBatching": True,
    "handler": {"mode": MODE, "save_mode": "openvino", "min_agreement": 0.9},
}


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_texts_of_an_exact_export_with_continuous_batching_are_compared(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    report = export(folder, ModelConfig.parse(CONTINUOUS), folder, ROWS[:3])
    assert report is not None
    assert report.generated == TextAgreement(3, 3, 3 * MAX_NEW_TOKENS, 1.0)
    assert report == ParityReport.find(folder)


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_an_export_whose_texts_differ_is_refused(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    different = TextAgreement(16, 0, 80, 0.8)
    monkeypatch.setattr(exporter, "compare_texts", lambda *_: different)
    with pytest.raises(WrongCheckpoint) as caught:
        export(checkpoint(MODE), ModelConfig.parse(CONTINUOUS), tmp_path, ROWS[:2])
    assert f"; {different}; handler.min_agreement is 0.9; " in str(caught.value)
    assert not (tmp_path / "quality.json").exists()


def test_the_report_has_the_texts_in_its_file_and_its_sentence(tmp_path: Path) -> None:
    report = replace(ParityReport(9, 9, 1.0, 0.1), generated=TextAgreement(4, 3, 50, 0.98))
    report.write(tmp_path)
    assert ParityReport.find(tmp_path) == report
    assert "have 98.00% of 50 tokens of `generate` (3 of 4 texts are equal)" in str(report)


@pytest.mark.parametrize(
    ("labels", "tokens", "reached"),
    [(0.995, 0.985, True), (0.995, 0.95, False), (0.98, 1.0, False)],
)
def test_labels_reach_the_minimum_and_tokens_as_far_as_few_of_them_tell(
    labels: float, tokens: float, reached: bool
) -> None:
    report = ParityReport(200, 9000, labels, 0.1, generated=TextAgreement(16, 6, 480, tokens))
    assert report.reaches(0.99) == reached


def test_the_interval_of_the_tokens_may_end_at_the_minimum() -> None:
    agreement = TextAgreement(16, 6, 480, 0.98)
    report = ParityReport(200, 9000, 1.0, 0.1, generated=agreement)
    minimum = agreement.interval[1]
    assert report.reaches(minimum)
    assert not report.reaches(minimum + 1e-9)
