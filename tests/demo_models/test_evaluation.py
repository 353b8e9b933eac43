from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.demo_models.evaluation import Score, f1, mean


def test_f1_counts_equal_items_of_the_same_row() -> None:
    assert f1([["a", "b"], ["c"]], [["a"], ["c", "d"]]) == pytest.approx(2 * 2 / 6)
    assert f1([["a"], []], [[], ["a"]]) == 0
    assert f1([["a", "a"]], [["a"]]) == pytest.approx(2 / 3)


def test_nothing_found_and_nothing_expected_is_perfect() -> None:
    assert f1([[]], [[]]) == 1


def test_mean_of_truth_values_is_the_share_of_true_ones() -> None:
    assert mean(number > 2 for number in (1, 2, 3, 4)) == 0.5


def test_a_score_is_read_as_it_was_written(tmp_path: Path) -> None:
    score = Score("text_generation", 7, 40, {"perplexity": 12.5})
    score.write(tmp_path)
    assert Score.read(tmp_path) == score
    assert str(score) == "perplexity 12.5"
    assert Score.read(tmp_path / "nowhere") is None
