from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

from tests.standins import torch_neuron, torch_neuronx


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Keep tiny models from threads that would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", autouse=True)
def neuron() -> Iterator[None]:
    """Let stand-ins answer for the packages of AWS Neuron."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch_neuron", torch_neuron)
        patch.setitem(sys.modules, "torch_neuronx", torch_neuronx)
        yield
