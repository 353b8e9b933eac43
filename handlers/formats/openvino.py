"""`save_mode: openvino`: for CPUs above all.

Encoders that can take packed rows are converted so that they do; generation and all others go
through optimum-intel's OVModel classes. `dtype` sets the precision in which OpenVINO computes
(`auto`: what it thinks best for the processor), `quantization` whether weights, or weights and
activations, are stored in fewer bits. What `optimum-cli export openvino` lays down loads as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from handlers.batching import Batch
from handlers.errors import WrongCheckpoint, short
from handlers.formats import pretrained
from handlers.formats.base import ForwardOnly, Model, Wanted
from handlers.graph import PackedGraph, exporting, graph_of
from handlers.graph_file import graph_file, loading
from handlers.needed import needed
from handlers.packing import Packed
from handlers.quantizing import EXACT, Gate, quantized
from handlers.signature import Signature
from handlers.trials import check_equal, example_inputs, trials

FILE = "openvino_model.xml"
GENERATES = True
OFFLINE = {"local_files_only": True, "trust_remote_code": False}
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Convert the checkpoint in `wanted.directory` into a folder, quantized as the YAML says.

    Raises:
        WrongCheckpoint: this architecture cannot be converted.
        WrongConfig: OpenVINO's packages are not installed.
    """
    needed("openvino", "save_mode: openvino")
    if not (wanted.padding and _export_packed(wanted, target, inputs)):
        _export_padded(wanted, target)
    for path in wanted.directory.glob("*config.json"):
        if not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)


def load(wanted: Wanted) -> Model:
    """Load and compile the graph.

    Raises:
        WrongCheckpoint: no `openvino_model.xml`, or none that OpenVINO can run.
        WrongConfig: OpenVINO's packages are not installed.
    """
    openvino = needed("openvino", "save_mode: openvino")
    path = graph_file(wanted.directory, FILE)
    settings = _settings(wanted)
    with loading(FILE):
        graph = openvino.Core().read_model(path)
        signature = Signature(_names(graph.inputs), wanted.outputs)
        if signature.packs:
            return PackedModel(openvino.compile_model(graph, "CPU", settings), signature)
        del graph
        model = _class(wanted).from_pretrained(
            str(wanted.directory), export=False, ov_config=settings, **OFFLINE
        )
    return OpenVinoModel(model, wanted.outputs)


class PackedModel(ForwardOnly):
    """A compiled graph that takes packed rows."""

    def __init__(self, compiled: Any, signature: Signature) -> None:
        self._compiled, self._signature = compiled, signature

    @property
    def packs(self) -> bool:
        return True

    @property
    def compiles_shapes(self) -> bool:
        return True

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._run(self._signature.by_position(batch))

    def forward_packed(self, packed: Packed) -> Mapping[str, torch.Tensor]:
        return self._run([packed.inputs[name] for name in self._signature.inputs])

    def _run(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        names = self._signature.inputs
        given = dict(zip(names, (each.numpy() for each in inputs), strict=True))
        found = self._compiled(given, share_inputs=True)
        return {name: torch.from_numpy(found[name]) for name in self._signature.outputs}


class OpenVinoModel(Model):
    """One of optimum-intel's models."""

    def __init__(self, model: Any, outputs: tuple[str, ...]) -> None:
        self._model, self._outputs = model, outputs
        self._inputs = set(_names(model.model.inputs))

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        known = {name: tensor for name, tensor in batch.items() if name in self._inputs}
        found = self._model(**known)
        return {name: found[name] for name in self._outputs}

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        ids = self._model.generate(**batch, generation_config=config, **extra)
        return torch.as_tensor(ids)


def _export_packed(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> bool:
    """Convert a model for packed rows; one that cannot take them is left."""
    openvino = needed("openvino", "save_mode: openvino")
    exact = wanted.config.handler.model_copy(update={"dtype": "float32"})
    source = replace(wanted, config=wanted.config.model_copy(update={"handler": exact}))
    module = pretrained.read(source).eval().requires_grad_(requires_grad=False)
    graph = graph_of(module, wanted, inputs)
    if not isinstance(graph, PackedGraph):
        return False
    batches = trials(module, inputs)
    with exporting(module):
        made = openvino.convert_model(graph, example_input=example_inputs(graph, batches))
        _name(made.inputs, graph.signature.inputs)
        _name(made.outputs, graph.signature.outputs)
    _check(wanted, made, graph.signature, module, batches)
    feeds = [_feed(graph.signature, batch) for batch in wanted.calibration]
    small = _fewer_bits(wanted, made, feeds)
    openvino.save_model(small, target / FILE, compress_to_fp16=False)
    return True


def _check(
    wanted: Wanted, made: Any, signature: Signature, module: PreTrainedModel, batches: list[Batch]
) -> None:
    openvino = needed("openvino", "save_mode: openvino")
    exact = {**_settings(wanted), **EXACT}
    model = PackedModel(openvino.compile_model(made, "CPU", exact), signature)
    inputs = [
        name for name in signature.inputs if name in wanted.checkpoint.tokenizer.model_input_names
    ]
    check_equal(module, model, trials(module, (*inputs, "attention_mask")), FILE)


def _export_padded(wanted: Wanted, target: Path) -> None:
    """Convert a model as optimum-intel does."""
    kind = _class(wanted)
    try:
        model = kind.from_pretrained(
            str(wanted.directory), export=True, compile=False, load_in_8bit=False, **OFFLINE
        )
    except Exception as error:  # noqa: BLE001 - converters raise errors of their own
        raise WrongCheckpoint(
            FILE, f"cannot be made ({short(error)})", "use save_mode: pretrained"
        ) from None
    signature = Signature(_names(model.model.inputs), wanted.outputs)
    feeds = [_feed(signature, batch) for batch in wanted.calibration]
    model.model = _fewer_bits(wanted, model.model, feeds)
    with TemporaryDirectory(dir=target) as scratch:
        model.save_pretrained(scratch)
        for path in Path(scratch).glob("openvino_*"):
            path.replace(target / path.name)


def _fewer_bits(wanted: Wanted, graph: Any, feeds: Sequence[Mapping[str, Any]]) -> Any:
    handler = wanted.config.handler
    independent = wanted.checkpoint.independent_labels
    gate = Gate(handler.min_agreement, independent, _settings(wanted))
    return quantized(graph, handler.quantization, feeds, gate)


def _feed(signature: Signature, batch: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    names = [name for name in signature.inputs if signature.packs or name in batch]
    tensors = replace(signature, inputs=tuple(names)).by_position(batch)
    return dict(zip(names, (tensor.numpy() for tensor in tensors), strict=True))


def _settings(wanted: Wanted) -> dict[str, int | str]:
    settings: dict[str, int | str] = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    if precision := PRECISIONS.get(wanted.config.handler.dtype):
        settings["INFERENCE_PRECISION_HINT"] = precision
    return settings


def _names(ports: Sequence[Any]) -> tuple[str, ...]:
    return tuple(each.get_any_name() for each in ports)


def _name(ports: Sequence[Any], names: Sequence[str]) -> None:
    for port, name in zip(ports, names, strict=True):
        port.get_tensor().set_names({name})


def _class(wanted: Wanted) -> Any:
    intel = needed("optimum.intel.openvino", "save_mode: openvino")
    return getattr(intel, f"OV{wanted.auto_class.removeprefix('Auto')}")
