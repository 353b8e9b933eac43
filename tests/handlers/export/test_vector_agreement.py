from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handlers.config.model_config import ModelConfig
from handlers.errors import WrongCheckpoint
from handlers.export.parity_report import ParityReport
from handlers.export.vector_agreement import compare_vectors, rank_correlation
from handlers.formats import export
from handlers.types.request import Request
from tests import tiny
from tests.samples import FINE, LONG, ODD
from tests.sentences import refused

MODE = "sentence_embedding"


def vectors(count: int = 20, size: int = 8) -> Any:
    return np.random.default_rng(0).normal(size=(count, size))


def report(expected: Any, found: Any) -> ParityReport:
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
    assert ParityReport.find(tmp_path) == found
    assert "rank correlation" in str(found)


WORDS = f"{FINE} {ODD} {LONG}".split()
TEXTS = [Request(" ".join(WORDS[number : number + 9])) for number in range(0, 80, 2)]
INT8 = {"mode": MODE, "save_mode": "openvino", "quantization": "int8"}


@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore")
def test_an_int8_export_records_cosines_and_the_order_of_similarities(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    config = ModelConfig.parse({"handler": {**INT8, "min_agreement": 0.5}})
    report = export(folder, config, folder, TEXTS)
    assert report is not None and report == ParityReport.find(folder)
    assert report.vectors is not None
    assert 0.5 < report.vectors.cosine < 1
    assert report.vectors.pairs > 100
    assert report.agreement == min(report.vectors.cosine, report.vectors.rank_correlation)


@pytest.mark.nightly
@pytest.mark.openvino
@pytest.mark.filterwarnings("ignore")
def test_an_int8_export_below_the_minimum_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    config = ModelConfig.parse({"handler": {**INT8, "min_agreement": 0.99999999}})
    with refused(WrongCheckpoint, "handler.min_agreement", 1):
        export(folder, config, folder, TEXTS)
    assert not (folder / "quality.json").exists()
