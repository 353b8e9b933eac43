from __future__ import annotations

import torch
from torch.export import Dim

from handlers.compat.torch import export_for_any_rows


class Rows(torch.nn.Module):
    """Uses `len`, which torch.export makes a constant unless it traces bytecode."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.reshape(len(ids), -1) + len(ids)


def test_a_graph_that_uses_len_takes_any_number_of_rows() -> None:
    program = export_for_any_rows(
        Rows(), (torch.ones(3, 4),), {0: Dim("rows", min=2, max=64), 1: None}
    )
    found = program.module()(torch.ones(5, 4))
    assert torch.equal(found, torch.full((5, 4), 6.0))
