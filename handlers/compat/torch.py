"""What is private or undocumented in torch, which this imports where it is used."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def export_for_any_rows(
    graph: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any
) -> torch.export.ExportedProgram:
    """Export a graph with torch.export; `len(tensor)` is no constant.

    It is one unless Python's bytecode is traced (`strict`), which takes longer.

    Breaks when torch.export raises another error than `torch._dynamo.exc.UserError` for a free axis
    that the trace makes a constant.
    """
    import torch  # noqa: PLC0415
    from torch._dynamo.exc import UserError  # noqa: PLC0415

    try:
        return torch.export.export(graph, example, dynamic_shapes=(shapes,))
    except UserError:
        return torch.export.export(graph, example, dynamic_shapes=(shapes,), strict=True)


def is_unusable_after_fork() -> bool:
    """Return whether this process is a fork of one in which torch had begun to use CUDA.

    Breaks when torch refuses CUDA in forks for another reason than `_is_in_bad_fork`.
    """
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda._is_in_bad_fork())
