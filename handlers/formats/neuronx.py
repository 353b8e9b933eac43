"""`save_mode: neuronx`: a graph for Inferentia2 and Trainium, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuronx`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from handlers.formats._neuron import NEURON_INDEX, NeuronFormat


class Format(NeuronFormat):
    """A graph that `torch_neuronx` compiled."""

    package = "torch_neuronx"
    packages: ClassVar[Mapping[str, str]] = {
        package: f"pip install --extra-index-url {NEURON_INDEX} neuronx-cc torch-neuronx"
    }
