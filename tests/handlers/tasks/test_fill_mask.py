"""Fill-mask: masks, targets and limits beside the reference answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sentences import Sentence
from tests.serving import Served, explanation_of

Load = Callable[..., Served]


def test_each_mask_has_its_tokens_and_the_other_masks_stay(served: Load) -> None:
    first, second = served("fill_mask").ask("[MASK] in [MASK].", top_k=2)
    assert first[0]["sequence"].count("[MASK]") == second[0]["sequence"].count("[MASK]") == 1
    assert first[0]["sequence"].index("[MASK]") > second[0]["sequence"].index("[MASK]")


def test_a_mask_is_written_alike_for_every_tokenizer(served: Load) -> None:
    model = served("fill_mask", family="Roberta")
    assert model.ask("Ada lives in [MASK].") == model.ask("Ada lives in <mask>.")


def test_targets_are_the_only_tokens_that_are_scored(served: Load) -> None:
    found = served("fill_mask").ask("Ada lives in [MASK].", targets=["paris", "music", "paris"])
    assert {item["token_str"] for item in found} == {"paris", "music"}


@pytest.mark.parametrize(
    ("text", "status", "fragment"),
    [
        ("Ada lives in Paris.", 400, "write [MASK] in the place of a word"),
        ("[MASK] " * 33, 413, "33 mask tokens, and this model takes 32"),
        ("a fox " * 200 + "[MASK]", 413, "behind the model's last position"),
        ("[MASK] " + "a fox " * 200 + "[MASK]", 413, "behind the model's last position"),
    ],
)
def test_a_text_without_a_mask_or_with_too_many_is_refused(
    served: Load, text: str, status: int, fragment: str
) -> None:
    found, sentence = served("fill_mask").refuse(text)
    assert found == status
    assert fragment in sentence


def test_a_text_is_not_filled_too_often(served: Load) -> None:
    status, sentence = served("fill_mask").refuse("[MASK] " * 20, top_k=26)
    assert status == 413
    assert sentence == Sentence(20, "top_k", 26, 500)
    assert len(served("fill_mask").ask("[MASK] " * 20, top_k=25)) == 20


def test_the_token_of_another_mask_is_explained(served: Load) -> None:
    target = {"mask": 1, "token": "paris"}
    body = {"inputs": "[MASK] in [MASK].", "target": target}
    ((status, found),) = served("fill_mask").post(explanation_of(body))
    assert status == 200
    assert (found["target"]["label"], found["target"]["mask"]) == ("paris", 1)
    assert found["output"] - found["baseline_output"] == pytest.approx(
        sum(found["attributions"]), abs=0.1
    )


@pytest.mark.parametrize("target", [5, {"mask": 2, "token": "paris"}, {"mask": 0}, ["paris"]])
def test_an_unknown_token_or_mask_is_a_bad_request(served: Load, target: object) -> None:
    body = {"inputs": "[MASK] in [MASK].", "target": target}
    ((status, _),) = served("fill_mask").post(explanation_of(body))
    assert status == 400
