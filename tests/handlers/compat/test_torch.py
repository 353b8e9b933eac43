from __future__ import annotations

import subprocess
import sys

import torch
from torch.export import Dim

from hf_serve.handlers.compat.torch import export_for_any_rows, is_unusable_after_fork


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


def test_a_process_that_is_no_fork_can_use_cuda() -> None:
    assert not is_unusable_after_fork()


def test_torch_says_whether_a_fork_can_use_cuda() -> None:
    assert torch.cuda._is_in_bad_fork() is False


def test_torch_is_not_imported() -> None:
    program = (
        "import sys; from hf_serve.handlers.compat.torch import is_unusable_after_fork as unusable;"
        " print(unusable(), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
