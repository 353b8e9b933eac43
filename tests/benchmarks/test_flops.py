from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmarks.flops import flops_per_row


@pytest.mark.parametrize("length", [8, 128])
def test_the_formula_agrees_with_the_flop_counter_of_torch(length: int) -> None:
    config = BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=96,
        attn_implementation="eager",
    )
    encoder = BertModel(config, add_pooling_layer=False).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(torch.ones(1, length, dtype=torch.long))
    assert flops_per_row(config, [length]) == counter.get_total_flops()


def test_the_cost_of_rows_is_the_mean_over_their_lengths() -> None:
    config = BertConfig()
    both = flops_per_row(config, [10]), flops_per_row(config, [90])
    assert flops_per_row(config, [10, 90]) == pytest.approx(sum(both) / 2)
