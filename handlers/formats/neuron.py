"""`save_mode: neuron`: a graph for the first generation of Inferentia, compiled for one shape.

Export and serving need a machine with the device and AWS's `torch-neuron`. AWS has archived that
package; its last release needs torch 1.13, which current transformers do not support. Prefer
`save_mode: neuronx` for Inferentia2 and Trainium.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from handlers.formats._neuron import NEURON_INDEX, NeuronFormat


class Format(NeuronFormat):
    """A graph compiled by `torch_neuron`."""

    package = "torch_neuron"
    packages: ClassVar[Mapping[str, str]] = {
        package: f"pip install --extra-index-url {NEURON_INDEX} neuron-cc torch-neuron"
    }
