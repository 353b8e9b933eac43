"""`save_mode: neuron`: a graph for the first generation of Inferentia, compiled for one shape.

Export and serving need a machine with the device and AWS's `torch-neuron`. AWS has archived that
package; its last release needs torch 1.13, which current transformers do not support. Prefer
`save_mode: neuronx` for Inferentia2 and Trainium.

The shape is `handler.batch_size` rows (by default TorchServe's `batchSize`) of `handler.max_length`
tokens, limited to the tokens that the checkpoint reads. `max_length` is required, because it
determines the cost of every request. The compilers round, so a graph is evaluated on samples like
every lossy export.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.nn.functional import pad
from transformers import PreTrainedModel

from ..batching.tokenization import check_length
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs, TokenInputs
from ..errors import WrongCheckpoint, WrongConfig, summarize
from ..export.fidelity import check_fidelity
from ..export.manifest import FILE as MANIFEST
from ..export.manifest import ExportManifest, Shape, Signature
from ..model import ForwardOnlyModel, Model
from . import torchscript
from .base import FormatCapabilities
from .graph import (
    GraphModel,
    TorchGraphFormat,
    find_graph_file,
    padded_graph,
    translate_export_errors,
)
from .weights import read_weights

# AWS's package index; the packages of these names on the public index are empty.
NEURON_INDEX = "https://pip.repos.neuron.amazonaws.com"
LEGACY_NAME = re.compile(r"_batch_(\d+)\.pt$")
# Neuron's compilers multiply float32 matrices in bfloat16. The rounding error is 1 or 2 percent of
# the largest logit in a deep model; the error of an incorrect graph is far larger.
TOLERANCE = 0.05


class NeuronFormat(TorchGraphFormat):
    """A graph for an AWS chip.

    Attributes:
        package: the AWS package that compiles and runs the graph.
    """

    capabilities = FormatCapabilities(
        row_kinds=("tokens",), is_lossy=True, has_fixed_shape=True, supports_batch_size=True
    )
    package: ClassVar[str]
    file = torchscript.Format.file
    pattern = torchscript.Format.pattern

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        if not isinstance(inputs, TokenInputs):
            raise NotImplementedError(type(inputs).__name__)
        trace = self._import_package().trace
        module = read_weights(spec).eval()
        signature = Signature(inputs.names, spec.outputs.names)
        rows, width = _rows(spec), _width(spec)
        shape = Shape(rows, width, _per_token(module, signature, inputs, width))
        with translate_export_errors(module):
            batch = inputs.batch(module, rows, width)
            graph = trace(padded_graph(module, signature, inputs), tuple(batch.values()))
            torch.jit.save(graph, target / self.file)
        ExportManifest(signature, shape=shape).write(target)
        model = FixedShapeModel(_DeviceModel(GraphModel(graph, signature)), shape, _pad_ids(spec))
        shapes = ((rows + 1, width), (1, -(-width // 2)))
        batches = [inputs.batch(module, *each) for each in shapes]
        check_fidelity(module, model, batches, self.file, TOLERANCE)

    def load(self, spec: ModelSpec) -> Model:
        """Load a compiled graph, also one of TorchServe's example.

        Raises:
            WrongCheckpoint: there is no `.pt` file, it cannot be read, or its shape differs from
                the YAML.
            WrongConfig: the AWS package is not installed.
        """
        self._import_package()
        graph = super().load(replace(spec, device=torch.device("cpu")))
        width = _width(spec)
        manifest = ExportManifest.read(spec.directory, spec.outputs.names)
        shape = manifest.shape or self._legacy_shape(spec, width)
        _check_key("max_length", shape.width, width)
        _check_key("batch_size", shape.rows, spec.config.handler.batch_size)
        return FixedShapeModel(graph, shape, _pad_ids(spec))

    def read_graph(self, path: Path, device: torch.device) -> torch.nn.Module:
        graph: torch.nn.Module = torch.jit.load(path, map_location=device).eval()
        return graph

    def _import_package(self) -> Any:
        """Import the AWS package, which registers the operations of its graphs in torch.

        Raises:
            WrongConfig: the package is not installed, or is the empty package of the public index.
        """
        # By default, the first worker reserves all Neuron cores of the machine.
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

    def _legacy_shape(self, spec: ModelSpec, width: int) -> Shape:
        """Return the shape of a graph of TorchServe's example, whose name has the batch size."""
        match = LEGACY_NAME.search(find_graph_file(spec.directory, self.file, self.pattern).name)
        # The output shape is ambiguous: the number of labels can equal max_length.
        per_token = () if "SequenceClassification" in spec.auto_class else spec.outputs.names
        return Shape(int(match[1]) if match else _rows(spec), width, per_token)


class Format(NeuronFormat):
    """A graph compiled by `torch_neuron`."""

    package = "torch_neuron"
    packages: ClassVar[Mapping[str, str]] = {
        package: f"pip install --extra-index-url {NEURON_INDEX} neuron-cc torch-neuron"
    }


class FixedShapeModel(ForwardOnlyModel):
    """Runs any number of rows on a model of fixed shape.

    Rows are padded on the right, regardless of the tokenizer's padding side, so that position ids
    do not change. Missing rows are copies of the last one, because many attention kernels return
    NaN for a row without tokens.
    """

    def __init__(self, model: Model, shape: Shape, pad_ids: Mapping[str, int]) -> None:
        self._model, self._shape, self._pad_ids = model, shape, pad_ids

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        rows, width = batch["input_ids"].shape
        check_length(width, self._shape.width, "a row")
        results = [self._model.forward(chunk) for chunk in self._chunks(batch)]
        outputs = {name: torch.cat([each[name] for each in results])[:rows] for name in results[0]}
        return {
            name: output[:, :width] if name in self._shape.per_token else output
            for name, output in outputs.items()
        }

    def _chunks(self, batch: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        rows, width = batch["input_ids"].shape
        count = -(-rows // self._shape.rows)
        order = torch.arange(count * self._shape.rows).clamp(max=rows - 1)
        missing = (0, self._shape.width - width)
        padded = {
            name: pad(tensor.cpu(), missing, value=self._pad_ids.get(name, 0))[order]
            for name, tensor in batch.items()
        }
        return [
            {name: tensor[indices] for name, tensor in padded.items()}
            for indices in torch.arange(len(order)).split(self._shape.rows)
        ]


class _DeviceModel(ForwardOnlyModel):
    """Reports a missing Neuron device as :class:`WrongCheckpoint`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        try:
            return self._model.forward(batch)
        except Exception as error:  # noqa: BLE001 - the runtime has its own error types
            raise WrongCheckpoint(
                torchscript.Format.file,
                f"was compiled, but cannot be run on this machine ({summarize(error)})",
                "export it on a machine of the kind that serves it",
            ) from None


def _rows(spec: ModelSpec) -> int:
    return spec.config.handler.batch_size or spec.config.batchSize


def _width(spec: ModelSpec) -> int:
    limits = (spec.config.handler.max_length, spec.checkpoint.limit)
    return min(limit for limit in limits if limit)


def _pad_ids(spec: ModelSpec) -> dict[str, int]:
    return {"input_ids": spec.checkpoint.pad_token_id}


@torch.no_grad()
def _per_token(
    module: PreTrainedModel, signature: Signature, inputs: TokenInputs, width: int
) -> tuple[str, ...]:
    """Return the outputs whose second dimension follows the width of the input."""
    widths = (width, width - 1)
    results = [module(**inputs.batch(module, 1, each)) for each in widths]
    return tuple(
        name
        for name in signature.outputs
        if all(
            tuple(output[name].shape[1:2]) == (each,)
            for output, each in zip(results, widths, strict=True)
        )
    )


def _check_key(key: str, graph: int, configured: int | None) -> None:
    if configured not in (None, graph):
        raise WrongCheckpoint(
            MANIFEST,
            f"the graph is compiled for {key} {graph}, and the YAML comes to {configured}",
            f"set handler.{key}: {graph}, or export the model again",
        )
