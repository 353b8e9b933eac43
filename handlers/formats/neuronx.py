"""`save_mode: neuronx`: a graph for Inferentia2 and Trainium, compiled for one shape.

Export and serving need a machine with the device and AWS's `torch-neuronx`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from .neuron import NEURON_INDEX, NeuronFormat


class Format(NeuronFormat):
    """A graph compiled by `torch_neuronx`."""

    package = "torch_neuronx"
    packages: ClassVar[Mapping[str, str]] = {
        package: f"pip install --extra-index-url {NEURON_INDEX} neuronx-cc torch-neuronx"
    }
