"""What is private or undocumented in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.exc import UserError


def export_for_any_rows(
    graph: torch.nn.Module, example: tuple[torch.Tensor, ...], shapes: Any
) -> torch.export.ExportedProgram:
    """Export a graph with torch.export; `len(tensor)` is no constant.

    It is one unless Python's bytecode is traced (`strict`), which takes longer.

    Breaks when torch.export raises another error than `torch._dynamo.exc.UserError` for a free axis
    that the trace makes a constant.
    """
    try:
        return torch.export.export(graph, example, dynamic_shapes=(shapes,))
    except UserError:
        return torch.export.export(graph, example, dynamic_shapes=(shapes,), strict=True)
