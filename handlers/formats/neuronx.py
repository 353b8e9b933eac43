"""`save_mode: neuronx`: a graph for Inferentia2 and Trainium, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuronx`.
"""

from __future__ import annotations

from functools import partial

from handlers import neuron_graph

GENERATES = False
LOSSY = True

export = partial(neuron_graph.export, "torch_neuronx")
load = partial(neuron_graph.load, "torch_neuronx")
