"""What is explained, as functions of outputs."""

import pytest
import torch

from hf_serve.handlers.explainers.base import Comparison


@pytest.mark.parametrize(("normalizes", "score"), [(True, 1.0), (False, 3.0)])
def test_a_comparison_cuts_a_vector_before_it_gets_a_length_of_1(
    normalizes: bool, score: float
) -> None:
    comparison = Comparison(torch.tensor([1.0]), "dot", normalizes)
    outputs, arguments = torch.tensor([[3.0, 4.0]]), comparison.argument[None]
    assert comparison.score(outputs, arguments).tolist() == [score]
