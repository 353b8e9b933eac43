"""`save_mode: neuron`: a graph for the first Inferentia, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuron`. AWS has
archived that package, whose last release is for torch 1.13, older than today's transformers take:
where there is a choice, `save_mode: neuronx` is the one that lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from handlers.formats._neuron import NEURON_INDEX, NeuronFormat


class Format(NeuronFormat):
    """A graph that `torch_neuron` compiled."""

    package = "torch_neuron"
    packages: ClassVar[Mapping[str, str]] = {
        package: f"pip install --extra-index-url {NEURON_INDEX} neuron-cc torch-neuron"
    }
