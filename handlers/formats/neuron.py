"""`save_mode: neuron`: a graph for the first Inferentia, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuron`. AWS has
archived that package, whose last release is for torch 1.13, older than today's transformers take:
where there is a choice, `save_mode: neuronx` is the one that lives.
"""

from __future__ import annotations

from pathlib import Path

from handlers import neuron_graph
from handlers.formats.base import Model, Wanted

PACKAGE = "torch_neuron"
GENERATES = False


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Compile the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be compiled, or the graph gives other answers.
        WrongConfig: torch-neuron is not installed.
    """
    trace = neuron_graph.package(PACKAGE, "neuron").trace
    neuron_graph.export(wanted, target, inputs, trace)


def load(wanted: Wanted) -> Model:
    """Load the compiled graph; one that the old example made is read as well.

    Raises:
        WrongCheckpoint: no `.pt` file, none that torch can read, or one of another shape.
        WrongConfig: torch-neuron is not installed.
    """
    neuron_graph.package(PACKAGE, "neuron")
    return neuron_graph.load(wanted)
