"""`save_mode: neuron`: a graph for the first Inferentia, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuron`. AWS has
archived that package, whose last release is for torch 1.13, older than today's transformers take:
where there is a choice, `save_mode: neuronx` is the one that lives.
"""

from __future__ import annotations

from functools import partial

from handlers.formats import _neuron

GENERATES = False
LOSSY = True

export = partial(_neuron.export, "torch_neuron")
load = partial(_neuron.load, "torch_neuron")
