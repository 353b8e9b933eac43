"""What the formats of AWS Neuron share: a TorchScript graph that was compiled for one shape.

The shape is `handler.batch_size` rows (by default `batchSize`, TorchServe's own key) of
`handler.max_length` tokens, or of fewer where the checkpoint takes fewer. A Neuron YAML without
`max_length` is refused: the width decides what each request costs, so it is nothing to guess.
Since the compilers round, a graph is measured on samples, as every lossy export is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel

from handlers.checkpoints.model_spec import ModelSpec
from handlers.errors import WrongCheckpoint, WrongConfig, summarize
from handlers.export.manifest import FILE as MANIFEST
from handlers.export.manifest import ExportManifest, Shape, Signature
from handlers.export.parity import check_parity, example_batch
from handlers.formats import torchscript
from handlers.formats._fixed_shape import FixedShapeModel
from handlers.formats._graph import Graph, GraphModel, exporting
from handlers.formats._graph_file import TorchGraphFormat, graph_file
from handlers.formats.pretrained import read_weights
from handlers.runtime.model import ForwardOnlyModel, Model

# AWS's own index: the public one has empty packages of these names, or none.
NEURON_INDEX = "https://pip.repos.neuron.amazonaws.com"
OLD_NAME = re.compile(r"_batch_(\d+)\.pt$")
# Neuron's compilers multiply float32 matrices in bfloat16, which has 8 bits: rounding comes to one
# or two hundredths of the largest logit in a deep model, a wrong graph to far more.
TOLERANCE = 0.05


class NeuronFormat(TorchGraphFormat):
    """A graph for one of AWS's chips.

    Attributes:
        package: AWS's package, which compiles and runs it.
    """

    lossy = True
    fixed_shape = True
    takes_batch_size = True
    package: ClassVar[str]
    file = torchscript.Format.file
    pattern = torchscript.Format.pattern

    def export(self, spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
        trace = self._compiler().trace
        module = read_weights(spec).eval()
        signature = Signature(inputs, spec.outputs)
        rows, width = _rows(spec), _width(spec)
        shape = Shape(rows, width, _per_token(module, signature, width))
        vocabulary = int(module.config.get_text_config().vocab_size)
        with exporting(module):
            batch = example_batch(inputs, vocabulary, rows, width)
            graph = trace(Graph(module, signature).eval(), tuple(batch.values()))
            torch.jit.save(graph, target / self.file)
        ExportManifest(signature, shape=shape).write(target)
        model = FixedShapeModel(_OnDevice(GraphModel(graph, signature)), shape, _pad_ids(spec))
        shapes = ((rows + 1, width), (1, -(-width // 2)))
        batches = [example_batch(inputs, vocabulary, *each) for each in shapes]
        check_parity(module, model, batches, self.file, TOLERANCE)

    def load(self, spec: ModelSpec) -> Model:
        """Load a compiled graph; one that TorchServe's example made loads as well.

        Raises:
            WrongCheckpoint: no `.pt` file, none that torch can read, or one of another shape than
                the YAML's.
            WrongConfig: AWS's package is not installed.
        """
        self._compiler()
        graph = super().load(replace(spec, device=torch.device("cpu")))
        width = _width(spec)
        known = ExportManifest.read(spec.directory, spec.outputs).shape
        shape = known or self._shape_of_the_example(spec, width)
        _check_key("max_length", shape.width, width)
        _check_key("batch_size", shape.rows, spec.config.handler.batch_size)
        return FixedShapeModel(graph, shape, _pad_ids(spec))

    def read_graph(self, path: Path, device: torch.device) -> torch.nn.Module:
        graph: torch.nn.Module = torch.jit.load(path, map_location=device).eval()
        return graph

    def _compiler(self) -> Any:
        """Return AWS's package, whose import registers the operations of its graphs in torch.

        Raises:
            WrongConfig: it is not installed, or is the empty one of that name on the public index.
        """
        # Without it, the first worker takes every core of the machine.
        os.environ.setdefault("NEURON_RT_NUM_CORES", "1")
        module = self.require(self.package)
        if not hasattr(module, "trace"):
            raise WrongConfig(
                f"save_mode: {self.name}",
                f"needs {self.package}, and what is installed is the empty package of the public"
                " index",
                self.packages[self.package],
            )
        return module

    def _shape_of_the_example(self, spec: ModelSpec, width: int) -> Shape:
        """Return the shape of a graph of TorchServe's example, which has the rows in its name."""
        named = OLD_NAME.search(graph_file(spec.directory, self.file, self.pattern).name)
        # Not from the outputs' shape: there are classifiers with 150 labels, the old max_length.
        per_token = () if "SequenceClassification" in spec.auto_class else spec.outputs
        return Shape(int(named[1]) if named else _rows(spec), width, per_token)


class _OnDevice(ForwardOnlyModel):
    """A graph that says in one sentence that this machine has no Neuron device."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        try:
            return self._model.forward(batch)
        except Exception as error:  # noqa: BLE001 - the runtime raises errors of its own
            raise WrongCheckpoint(
                torchscript.Format.file,
                f"was compiled, and cannot be run here to be compared ({summarize(error)})",
                "export it on the kind of machine that is to serve it",
            ) from None


def _rows(spec: ModelSpec) -> int:
    return spec.config.handler.batch_size or spec.config.batchSize


def _width(spec: ModelSpec) -> int:
    limits = (spec.config.handler.max_length, spec.checkpoint.limit)
    return min(limit for limit in limits if limit)


def _pad_ids(spec: ModelSpec) -> dict[str, int]:
    return {"input_ids": int(spec.checkpoint.tokenizer.pad_token_id or 0)}


@torch.no_grad()
def _per_token(module: PreTrainedModel, signature: Signature, width: int) -> tuple[str, ...]:
    """Return the outputs whose second axis is as long as the rows, whatever their length."""
    widths = (width, width - 1)
    found = [module(**example_batch(signature.inputs, 2, 1, each)) for each in widths]
    return tuple(
        name
        for name in signature.outputs
        if all(
            tuple(output[name].shape[1:2]) == (each,)
            for output, each in zip(found, widths, strict=True)
        )
    )


def _check_key(key: str, graph: int, given: int | None) -> None:
    if given not in (None, graph):
        raise WrongCheckpoint(
            MANIFEST,
            f"the graph is compiled for {key} {graph}, and the YAML comes to {given}",
            f"set handler.{key}: {graph}, or export the model again",
        )
