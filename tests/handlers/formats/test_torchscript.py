from __future__ import annotations

import io

import pytest
import torch

from hf_serve.handlers.formats.torchscript import replace_devices

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Positions(torch.nn.Module):
    """Creates a tensor, as models do for the positions of tokens."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.arange(input_ids.shape[1], device=input_ids.device)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Positions()])

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions: torch.Tensor = self.layers[0](input_ids)
        return positions + 1


def test_a_graph_creates_its_tensors_on_another_device_than_that_where_it_was_traced() -> None:
    # The device "meta" stands for an accelerator.
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(Layers(), torch.zeros(1, 4, dtype=torch.long)), file)
    file.seek(0)
    graph = torch.jit.load(file).eval()
    replace_devices(graph, torch.device("meta"))
    ids = torch.zeros(1, 6, dtype=torch.long, device="meta")
    assert graph(ids).device.type == "meta"
    assert graph(ids).shape == (6,)
