"""`save_mode: neuronx`: a graph for Inferentia2 and Trainium, compiled for one shape.

It is exported and served on a machine that has such a device and AWS's `torch-neuronx`.
"""

from __future__ import annotations

from pathlib import Path

from handlers import neuron_graph
from handlers.formats.base import Model, Wanted

PACKAGE = "torch_neuronx"
GENERATES = False


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Compile the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be compiled, or the graph gives other answers.
        WrongConfig: torch-neuronx is not installed.
    """
    trace = neuron_graph.package(PACKAGE, "neuronx").trace
    neuron_graph.export(wanted, target, inputs, trace)


def load(wanted: Wanted) -> Model:
    """Load the compiled graph; one that the old example made is read as well.

    Raises:
        WrongCheckpoint: no `.pt` file, none that torch can read, or one of another shape.
        WrongConfig: torch-neuronx is not installed.
    """
    neuron_graph.package(PACKAGE, "neuronx")
    return neuron_graph.load(wanted)
