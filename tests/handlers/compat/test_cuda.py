from __future__ import annotations

import subprocess
import sys

import torch

from handlers.compat.cuda import is_unusable_after_fork


def test_a_process_that_is_no_fork_can_use_cuda() -> None:
    assert not is_unusable_after_fork()


def test_torch_says_whether_a_fork_can_use_cuda() -> None:
    assert torch.cuda._is_in_bad_fork() is False


def test_torch_is_not_imported() -> None:
    program = (
        "import sys; from handlers.compat.cuda import is_unusable_after_fork as unusable;"
        " print(unusable(), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
