"""Graphs: checkpoints as functions of tensors, which exported formats trace, store and run."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.export import Dim
from transformers import PreTrainedModel

from ..batching.padding import Padding, Tensors
from ..batching.rows import Row
from ..batching.sequence_packing import (
    COLUMNS,
    ROWS,
    SEGMENTS,
    PackedBatch,
    first_fit_decreasing,
    pack,
)
from ..checkpoints.dtypes import name_of, pick_dtype
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.pooling import ModelWithPooling, TextSlots
from ..checkpoints.probe_inputs import (
    AnyLengthInputs,
    ArrayInputs,
    GraphInputs,
    SpeechInputs,
    TokenInputs,
    full_attention_tokens,
)
from ..compat.transformers import traceable_masks, without_masks
from ..errors import ConfigError, WrongCheckpoint, summarize
from ..export.fidelity import check_fidelity, in_dtype
from ..export.manifest import ExportManifest, Shape, Signature
from ..model import ForwardOnlyModel, Model, ModelCapabilities
from .base import BaseFormat
from .packable import Packable, as_packable, mask_by_layer_type

logger = logging.getLogger(__name__)

EXAMPLE_LENGTHS = (7, 12, 3, 9)


def _all_tokens(_module: PreTrainedModel, mask: torch.Tensor) -> torch.Tensor:
    return _attended(mask)[:, None]


def _earlier_tokens(_module: PreTrainedModel, mask: torch.Tensor) -> torch.Tensor:
    positions = torch.ones_like(mask).cumsum(1)
    return (_attended(mask) & (positions[:, :, None] >= positions[:, None, :]))[:, None]


def _by_layer_type(module: PreTrainedModel, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    positions = mask.cumsum(1)
    distance = positions[:, :, None] - positions[:, None, :]
    return mask_by_layer_type(module, _attended(mask), distance)


def _of_the_model(_module: PreTrainedModel, mask: torch.Tensor) -> torch.Tensor:
    return mask


def _attended(mask: torch.Tensor) -> torch.Tensor:
    """Return the tokens that each token attends to. Shape: (rows, width, width)."""
    rows, width = mask.shape
    return mask[:, None, :].bool().expand(rows, width, width)


PaddingMask = Callable[[PreTrainedModel, torch.Tensor], Any]
# The code of transformers that creates attention masks cannot be traced for most families.
PADDING_MASKS: tuple[PaddingMask, ...] = (_all_tokens, _by_layer_type, _of_the_model)
# Of texts beside arrays, whose model may read them in one direction.
TEXT_MASKS: tuple[PaddingMask, ...] = (_earlier_tokens, _all_tokens, _of_the_model)


class PaddedGraph(torch.nn.Module):
    """A model for padded rows with positional inputs and a tuple of outputs.

    Args:
        mask: makes the attention mask of the model from the padding mask of shape (rows, width).
    """

    def __init__(
        self, module: PreTrainedModel, signature: Signature, mask: PaddingMask = _all_tokens
    ) -> None:
        super().__init__()
        self.module = module
        self.signature = signature
        self.mask = mask

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        batch = dict(zip(self.signature.inputs, inputs, strict=True))
        mask = batch["attention_mask"]
        called: dict[str, Any] = {**batch, "attention_mask": self.mask(self.module, mask)}
        if isinstance(self.module, ModelWithPooling):
            called["slots"] = TextSlots.of_mask(mask)
        outputs = self.module(**called)
        return tuple(outputs[name] for name in self.signature.outputs)


def padded_graph(module: PreTrainedModel, signature: Signature, inputs: TokenInputs) -> PaddedGraph:
    """Return a graph for padded rows, with the first attention mask that keeps the outputs."""
    batches = inputs.batches(module)
    graphs = [PaddedGraph(module, signature, mask).eval() for mask in PADDING_MASKS]
    return next((graph for graph in graphs if _keeps_outputs(graph, batches)), graphs[-1])


def _keeps_outputs(graph: PaddedGraph | StackedGraph, batches: Sequence[Tensors]) -> bool:
    try:
        check_fidelity(graph.module, GraphModel(graph, graph.signature), batches, "")
    except Exception:  # noqa: BLE001 - each family refuses a mask in its own way
        return False
    return True


class PackedGraph(torch.nn.Module):
    """A model for packed rows with positional inputs and a tuple of outputs."""

    def __init__(self, packable: Packable, signature: Signature) -> None:
        super().__init__()
        self.module = packable.module
        self.packable = packable
        self.signature = signature

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        outputs = self.packable.forward(dict(zip(self.signature.inputs, inputs, strict=True)))
        return tuple(outputs[name] for name in self.signature.outputs)


class StackedGraph(torch.nn.Module):
    """A model for stacked arrays with positional inputs and a tuple of outputs.

    Args:
        mask: makes the attention mask of texts that the model reads beside the arrays.
        padded: whether arrays have padding, so that the model has to make masks itself.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        signature: Signature,
        mask: PaddingMask = _of_the_model,
        *,
        padded: bool = True,
    ) -> None:
        super().__init__()
        self.module = module
        self.signature = signature
        self.mask = mask
        self.padded = padded

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        batch = dict(zip(self.signature.inputs, inputs, strict=True))
        if (ids := batch.get("input_ids")) is not None:
            given = batch.get("attention_mask", torch.ones_like(ids))
            batch["attention_mask"] = self.mask(self.module, given)
        with nullcontext() if self.padded else without_masks(self.module.config):
            outputs = self.module(**in_dtype(batch, self.module.dtype))
        return tuple(outputs[name] for name in self.signature.outputs)


AnyGraph = PaddedGraph | PackedGraph | StackedGraph


def build_graph(module: PreTrainedModel, spec: ModelSpec, inputs: GraphInputs) -> AnyGraph:
    """Return a graph of a model.

    For tokens it takes packed rows, or padded rows if the model does not support packing.

    Raises:
        WrongCheckpoint: the model writes texts, or reads long ones with sparse attention.
    """
    _check_attention(spec)
    if isinstance(inputs, SpeechInputs):
        raise WrongCheckpoint(
            type(module).__name__,
            f"writes texts, which save_mode: {spec.config.handler.save_mode} cannot",
            "use save_mode: openvino or pretrained",
        )
    if isinstance(inputs, ArrayInputs):
        return _stacked_graph(module, spec, inputs)
    if not isinstance(inputs, TokenInputs):
        raise NotImplementedError(type(inputs).__name__)
    return _token_graph(module, spec, inputs)


def _check_attention(spec: ModelSpec) -> None:
    """Check that no text is read with sparse attention: a graph has full attention for all texts.

    Raises:
        WrongCheckpoint: texts may be long enough for it.
    """
    short, handler = full_attention_tokens(spec.checkpoint.config), spec.config.handler
    if short is None:
        return
    longest = min(filter(None, (spec.checkpoint.limit, handler.max_length)), default=math.inf)
    if longest > short:
        raise WrongCheckpoint(
            "config.json",
            f"has attention_type block_sparse, which save_mode: {handler.save_mode} computes for"
            f" texts of at most {short:,} tokens",
            f"set handler.max_length: {short}, or use save_mode: pretrained",
        )


def _stacked_graph(module: PreTrainedModel, spec: ModelSpec, inputs: ArrayInputs) -> StackedGraph:
    batches = inputs.batches(module)
    with torch.no_grad():
        found = module(**in_dtype(batches[0], module.dtype))
    outputs = tuple(name for name in spec.outputs.names if found.get(name) is not None)
    signature = Signature(inputs.names, outputs)
    masks = TEXT_MASKS if "input_ids" in inputs.names else (_of_the_model,)
    padded = not (isinstance(inputs, AnyLengthInputs) and inputs.is_waveform)
    graphs = [StackedGraph(module, signature, mask, padded=padded).eval() for mask in masks]
    if len(graphs) == 1:
        return graphs[0]
    return next((graph for graph in graphs if _keeps_outputs(graph, batches)), graphs[-1])


def _token_graph(
    module: PreTrainedModel, spec: ModelSpec, inputs: TokenInputs
) -> PaddedGraph | PackedGraph:
    trial = spec.checkpoint.probe_rows(spec.checkpoint.limit)
    packable = spec.padding and as_packable(
        module, trial, spec.padding, spec.outputs.names, spec.outputs.per_token
    )
    if not packable:
        return padded_graph(module, Signature(inputs.names, spec.outputs.names), inputs)
    model_inputs = [name for name in inputs.names if name != "attention_mask"]
    starts = (ROWS, COLUMNS) if packable.pools else ()
    names = (*model_inputs, "position_ids", SEGMENTS, *starts)
    return PackedGraph(packable, Signature(names, spec.outputs.names)).eval()


def dynamic_shapes(
    graph: AnyGraph, inputs: GraphInputs, example: Sequence[torch.Tensor]
) -> tuple[dict[int, Any], ...]:
    """Return the `dynamic_shapes` of torch.export.

    Args:
        example: positional inputs.
    """
    named = zip(graph.signature.inputs, example, strict=True)
    return tuple(dict.fromkeys(inputs.free_axes(*each), Dim.DYNAMIC) for each in named)


def example_inputs(graph: AnyGraph, batches: Sequence[Tensors]) -> tuple[torch.Tensor, ...]:
    """Return positional inputs for tracing a graph.

    Args:
        batches: padded batches; a graph for packed rows needs the names of their inputs only.
    """
    if not graph.signature.is_packed:
        return graph.signature.by_position(batches[0])
    names = [name for name in batches[0] if name != "attention_mask"]
    texts = [Row({name: [0] * length for name in names}) for length in EXAMPLE_LENGTHS]
    rows = first_fit_decreasing(EXAMPLE_LENGTHS, max(EXAMPLE_LENGTHS))
    packed = pack(texts, rows, Padding({}))
    return tuple(packed.inputs[name] for name in graph.signature.inputs)


class PositionalModel(ForwardOnlyModel):
    """A graph that takes the tensors of padded or of packed rows in the order of its signature."""

    def __init__(self, signature: Signature, **capabilities: bool) -> None:
        self._signature = signature
        self.capabilities = ModelCapabilities(supports_packing=signature.is_packed, **capabilities)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._run(self._signature.by_position(batch))

    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
        return self._run([packed.inputs[name] for name in self._signature.inputs])

    @abstractmethod
    def _run(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the outputs by name."""


class GraphModel(PositionalModel):
    """A graph with positional inputs that torch runs.

    Graphs of TorchServe's example return a dict, or a tuple with additional outputs.
    """

    def __init__(
        self,
        graph: torch.nn.Module,
        signature: Signature,
        device: torch.device | None = None,
        *,
        full_precision: bool = False,
    ) -> None:
        self._graph, self._device = graph, device or torch.device("cpu")
        super().__init__(
            signature,
            on_accelerator=self._device.type != "cpu",
            full_precision=full_precision,
        )

    @torch.inference_mode()
    def _run(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        outputs = self._graph(*(tensor.to(self._device) for tensor in inputs))
        values = list(outputs.values()) if isinstance(outputs, dict) else list(outputs)
        return dict(zip(self._signature.outputs, values, strict=False))


@contextmanager
def translate_export_errors(module: PreTrainedModel) -> Iterator[None]:
    """Raise any error of the block as :class:`WrongCheckpoint`.

    Raises:
        WrongCheckpoint: the model cannot be exported.
    """
    try:
        with torch.no_grad(), traceable_masks():
            yield
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - each exporter has its own error types
        raise WrongCheckpoint(
            type(module).__name__,
            f"cannot be exported ({summarize(error)})",
            "use save_mode: pretrained",
        ) from None


def find_graph_file(directory: Path, name: str, pattern: str | None = None) -> Path:
    """Return the file of an exported model.

    Args:
        name: the name that the exporter writes.
        pattern: a glob pattern, whose first match is used where no file has the name.

    Raises:
        WrongCheckpoint: no file matches.
    """
    own = directory / name
    path = own if own.is_file() else min(directory.glob(pattern or name), default=None)
    if path is None:
        raise WrongCheckpoint(
            name,
            "is missing",
            "pack it with `hf-serve pack` (scripts/create_archive.py), which exports it",
        )
    return path


@contextmanager
def translate_load_errors(name: str) -> Iterator[None]:
    """Raise any error of the block as :class:`WrongCheckpoint`.

    Args:
        name: the name of the file that is loaded in the block.

    Raises:
        WrongCheckpoint: the file cannot be loaded.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - each reader has its own error types
        raise WrongCheckpoint(
            name, f"cannot be loaded ({summarize(error)})", "export it again"
        ) from None


class TorchGraphFormat(BaseFormat):
    """A format whose graph torch runs, stored with a manifest.

    Attributes:
        file: the name of the graph file that the exporter writes.
        pattern: a glob pattern for graph files that can be loaded.
    """

    file: ClassVar[str]
    pattern: ClassVar[str]

    @abstractmethod
    def read_graph(self, path: Path, device: torch.device) -> torch.nn.Module:
        """Read a graph from its file."""

    def load(self, spec: ModelSpec) -> Model:
        path = find_graph_file(spec.directory, self.file, self.pattern)
        manifest = ExportManifest.read(spec.directory, spec.outputs.required)
        _warn_about_dtype(spec, manifest.dtype, path.name)
        with translate_load_errors(path.name):
            graph = self.read_graph(path, spec.device)
        exact = manifest.dtype == "float32"
        return GraphModel(graph, manifest.signature, spec.device, full_precision=exact)

    def write_manifest(
        self, folder: Path, signature: Signature, dtype: torch.dtype, shape: Shape | None = None
    ) -> None:
        """Write the manifest of a graph to a directory."""
        ExportManifest(signature, name_of(dtype), shape).write(folder)


def _warn_about_dtype(spec: ModelSpec, exported: str | None, name: str) -> None:
    """Log a warning if `dtype: auto` selects another dtype here than on the exporting machine.

    Args:
        exported: the dtype of the graph; None if its manifest has none.
    """
    if spec.config.handler.dtype != "auto" or exported is None:
        return
    best = name_of(pick_dtype("auto", spec.device))
    if exported != best:
        logger.warning(
            "%s computes in %s, which dtype: auto chose where it was packed, and this machine would"
            " be best with %s; pack it again here, or name a dtype in its YAML and pack it again",
            name,
            exported,
            best,
        )
