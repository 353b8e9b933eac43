"""`save_mode: neuronx`: a graph for Inferentia2 and Trainium, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuronx`.
"""

from __future__ import annotations

from functools import partial

from handlers.formats import _neuron

GENERATES = False
LOSSY = True

export = partial(_neuron.export, "torch_neuronx")
load = partial(_neuron.load, "torch_neuronx")
