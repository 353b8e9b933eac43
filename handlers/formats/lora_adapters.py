"""LoRA adapters of a torch model, chosen for each row.

A layer computes its output for all rows together. The adapter of a row adds a part to it, or
replaces it where the adapter has saved the layer, such as the head of a classifier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from ..batching.rows import ADAPTER_IDS
from ..batching.sequence_packing import COLUMNS, ROWS
from ..checkpoints.lora_files import HEADS, PREFIX, AdapterFolders, LoraFiles
from ..checkpoints.pooling import ModelWithPooling
from ..compat.transformers import linear_sizes
from ..config.messages import enumerate_names, quote
from ..errors import Unprocessable, WrongCheckpoint, WrongConfig, summarize

Batch = Mapping[str, torch.Tensor]
# The number of the model itself, in the place of an adapter's.
NO_ADAPTER = 0
# The tasks whose heads may have other labels than the head of the model.
LABELLED = ("SEQ_CLS", "TOKEN_CLS")


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to the output of a layer.

    Attributes:
        down: shape (rank, inputs).
        up: shape (outputs, rank).
    """

    down: torch.Tensor
    up: torch.Tensor
    scaling: float

    def __call__(self, vectors: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        added = vectors.to(self.down.dtype) @ self.down.T @ self.up.T * self.scaling
        return output + added.to(output.dtype)


@dataclass(frozen=True)
class SavedLayer:
    """A linear layer of an adapter, which is computed in the place of the model's."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, vectors: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        found = torch.nn.functional.linear(vectors.to(self.weight.dtype), self.weight, self.bias)
        return found.to(output.dtype)


Part = LowRank | SavedLayer


@dataclass(frozen=True)
class MixedRows:
    """The adapters of a batch that has several, by their numbers.

    Attributes:
        texts: the number of each text. Shape: (texts,).
        slots: the number of each token, in padded or in packed rows; None where each row has the
            number of its text. Shape: (rows, width).
    """

    texts: torch.Tensor
    slots: torch.Tensor | None = None
    _places: dict[torch.Size, dict[int, torch.Tensor]] = field(default_factory=dict)

    def places(self, shape: torch.Size) -> Mapping[int, torch.Tensor]:
        """Return the places of the vectors of each adapter among those that a layer reads.

        Args:
            shape: the shape of these vectors, without their size.

        Raises:
            ValueError: it is neither the shape of tokens nor of texts.
        """
        if shape not in self._places:
            numbers_there = self._numbers_of(shape)
            numbers = set(self.texts.tolist()) - {NO_ADAPTER}
            self._places[shape] = {
                each: (numbers_there == each).nonzero()[:, 0] for each in numbers
            }
        return self._places[shape]

    def _numbers_of(self, shape: torch.Size) -> torch.Tensor:
        if self.slots is not None and shape == (self.slots.numel(),):
            return self.slots.flatten()
        for numbers in (self.slots, self.texts):
            if numbers is not None and shape[: numbers.ndim] == numbers.shape:
                others = (1,) * (len(shape) - numbers.ndim)
                return numbers.reshape(*numbers.shape, *others).expand(shape).flatten()
        raise ValueError(f"vectors of shape {tuple(shape)} belong to no row")


class LoraAdapters:
    """The adapters of a module; without a choice it computes as without them.

    Args:
        folders: the adapters that requests may choose.
        missing: the tensors that the checkpoint does not have, which each adapter must have.

    Attributes:
        mixes: whether rows with different adapters can run together. They cannot where a layer sees
            the tokens of all rows in one list, as in OPT.
    """

    def __init__(
        self, module: PreTrainedModel, folders: AdapterFolders, missing: Collection[str] = ()
    ) -> None:
        if any(parameter.is_meta for parameter in module.parameters()):
            raise WrongConfig(
                "handler.adapters",
                "is set, and handler.device_map leaves a part of the model out of memory",
                "use more memory or a smaller model, or leave adapters out",
            )
        self._module, self._folders, self._missing = module, folders, missing
        self._parts = dict[str, dict[int, Part]]()
        # The numbers of adapters by name and version, the last used ones at the end.
        self._numbers = dict[tuple[str, int], int]()
        self._given = count(NO_ADAPTER + 1)
        self._chosen: int | MixedRows = NO_ADAPTER
        self.mixes = True
        for name in folders.packed:
            self._load((name, folders.version(name)))

    def number(self, name: str | None) -> int:
        """Return the number of an adapter, or of the model itself.

        Raises:
            Unprocessable: it is the model, and the model has no head; or an adapter is invalid, or
                does not fit the model.
        """
        if name is None and self._missing:
            raise Unprocessable(
                "The model has a head in its adapters alone; choose one with adapter_id:"
                f" {enumerate_names(self._folders)}."
            )
        if name is None:
            return NO_ADAPTER
        key = name, self._folders.version(name)
        if key not in self._numbers:
            try:
                self._load(key)
            except WrongCheckpoint as error:
                raise Unprocessable(
                    f"The adapter {quote(name)} cannot be loaded: it {error.problem};"
                    f" {error.remedy}."
                ) from None
        self._numbers[key] = self._numbers.pop(key)
        return self._numbers[key]

    def release(self) -> int:
        """Drop the adapters that were not used for the longest time, and return how many.

        Adapters of the YAML stay. A batch must not run, as its rows have the numbers of adapters.
        """
        others = [key for key in self._numbers if key[0] not in self._folders.packed]
        dropped = others[: max(0, len(others) - self._folders.max_loaded)]
        for key in dropped:
            self._drop(self._numbers.pop(key))
        return len(dropped)

    def _load(self, key: tuple[str, int]) -> None:
        """Load the weights of an adapter.

        Raises:
            WrongCheckpoint: its files are invalid, or do not fit the model.
        """
        number, files = next(self._given), self._folders.read(key[0])
        for path, part in self._read(files).items():
            self._parts_of(path)[number] = part
        try:
            self._try(number, files)
        except WrongCheckpoint:
            self._drop(number)
            raise
        self._numbers[key] = number

    def _drop(self, number: int) -> None:
        for parts in self._parts.values():
            parts.pop(number, None)

    @contextmanager
    def active(self, adapters: Sequence[str | None]) -> Iterator[None]:
        """Run the forwards in a block with adapters, by their names; None is for no adapter.

        Args:
            adapters: the name of each row's adapter. Where all are equal, the number of rows is
                free.
        """
        numbers = [self.number(name) for name in adapters]
        with self._choose(_choice(torch.tensor(numbers, device=self._module.device))):
            yield

    @contextmanager
    def of_batch(self, batch: Batch) -> Iterator[Batch]:
        """Run a batch, which the block gets without them, with the adapters that its tokens name.

        Args:
            batch: padded rows, or the tensors of :attr:`PackedBatch.inputs`.
        """
        rest = {name: tensor for name, tensor in batch.items() if name != ADAPTER_IDS}
        if len(rest) == len(batch):
            yield rest
            return
        slots = batch[ADAPTER_IDS].to(self._module.device)
        if ROWS in batch:
            texts = slots[batch[ROWS], batch[COLUMNS]]
        else:
            # Padding has no adapter.
            texts = slots.amax(1)
            slots = texts[:, None].expand_as(slots)
        with self._choose(_choice(texts, slots)):
            yield rest

    @contextmanager
    def _choose(self, chosen: int | MixedRows) -> Iterator[None]:
        before, self._chosen = self._chosen, chosen
        try:
            yield
        finally:
            self._chosen = before

    def _parts_of(self, path: str) -> dict[int, Part]:
        """Return the parts of a layer by the number of their adapter."""
        if path not in self._parts:
            parts = self._parts[path] = {}
            hook = partial(self._adapt, parts)
            # Before other hooks, which read the output of the layer.
            self._root.get_submodule(path).register_forward_hook(hook, prepend=True)
        return self._parts[path]

    def _adapt(
        self,
        parts: Mapping[int, Part],
        _layer: torch.nn.Module,
        inputs: tuple[torch.Tensor, ...],
        output: torch.Tensor,
    ) -> torch.Tensor:
        """Return the output of a layer with the parts of the chosen adapters."""
        chosen, (vectors,) = self._chosen, inputs
        if isinstance(chosen, int):
            return parts[chosen](vectors, output) if chosen in parts else output
        places = chosen.places(vectors.shape[:-1])
        flat, found = vectors.flatten(0, -2), output.flatten(0, -2)
        for number, own in places.items():
            if number in parts:
                found = _with_rows(found, own, parts[number](flat[own], output.flatten(0, -2)[own]))
        return found.reshape(*output.shape[:-1], found.shape[-1])

    @torch.inference_mode()
    def _try(self, number: int, files: LoraFiles) -> None:
        """Run a row with an adapter and one without together, and each by itself.

        Raises:
            WrongCheckpoint: the model does not run with the adapter.
        """
        ids = torch.zeros((2, 3), dtype=torch.long, device=self._module.device)
        numbers = torch.tensor([NO_ADAPTER, number], device=self._module.device)
        try:
            separate = [self._run(ids, each) for each in numbers.tolist()]
        except (ValueError, RuntimeError, TypeError) as error:
            raise _misfit(files, f"does not fit the model ({summarize(error, 300)})") from None
        try:
            together = self._run(ids, MixedRows(numbers))
        except (ValueError, RuntimeError, TypeError):  # for the shape of a layer
            self.mixes = False
            return
        tolerance = 1e-3 if self._module.dtype == torch.float32 else 1e-1
        for row, own in enumerate(separate):
            found, expected = together[row][..., : own.shape[-1]], own[row]
            allowed = tolerance * max(1.0, float(expected.abs().max()))
            self.mixes &= bool((found - expected).abs().max() <= allowed)

    def _run(self, ids: torch.Tensor, chosen: int | MixedRows) -> torch.Tensor:
        with self._choose(chosen):
            outputs = self._module(input_ids=ids, attention_mask=torch.ones_like(ids))
        first: torch.Tensor = next(iter(outputs.values()))
        return first.float()

    def _read(self, files: LoraFiles) -> dict[str, Part]:
        """Return the parts of an adapter by the paths of their layers."""
        tensors = {
            name.removeprefix(PREFIX): tensor for name, tensor in load_file(files.weights).items()
        }
        parts: dict[str, Part] = {}
        for name in sorted(filter(self._is_read, files.modules)):
            path, layer = self._layer(files, name)
            parts[path] = _low_rank(files, name, layer, tensors, self._module.dtype)
        saved = {name.rpartition(".")[0] for name in files.saved}
        for name in sorted(saved):
            path, layer = self._layer(files, name)
            parts[path] = _saved(files, name, layer, tensors, self._module.dtype)
        own = {f"{path}.{kind}" for path in parts for kind in ("weight", "bias")}
        if lacking := sorted(set(self._missing) - own):
            raise _misfit(files, f"has no {lacking[0]}, and neither has the checkpoint")
        return parts

    @property
    def _root(self) -> torch.nn.Module:
        """The module that adapters were trained for."""
        module = self._module
        return module.module if isinstance(module, ModelWithPooling) else module

    def _is_read(self, name: str) -> bool:
        """Return whether a layer is computed; the pooler of a base model may be left out."""
        pooler = getattr(self._root, "pooler", True)
        is_left_out = pooler is None or isinstance(pooler, torch.nn.Identity)
        return not (is_left_out and name.startswith("pooler."))

    def _layer(self, files: LoraFiles, name: str) -> tuple[str, torch.nn.Module]:
        """Return the path of a linear layer, and the layer.

        An adapter of a model without a head fits one with a head, and the other way round.
        """
        base = f"{getattr(self._root, 'base_model_prefix', '')}."
        for path in (name, f"{base}{name}", name.removeprefix(base)):
            try:
                layer = self._root.get_submodule(path)
            except AttributeError:
                continue
            if linear_sizes(layer) is None:
                raise _misfit(files, f"has {name}, which is no linear layer of the model")
            return path, layer
        raise _misfit(files, f"is for a model with {name}, which this one does not have")


def load_adapters(
    module: PreTrainedModel, folders: AdapterFolders, missing: Collection[str] = ()
) -> LoraAdapters | None:
    """Add adapters to a module in its data type; returns None where there are none.

    Args:
        missing: the tensors that the checkpoint does not have.

    Raises:
        WrongCheckpoint: the files of an adapter are invalid, or do not fit the module.
        WrongConfig: the YAML has layers of the module on disk.
    """
    return LoraAdapters(module, folders, missing) if folders else None


def _choice(texts: torch.Tensor, slots: torch.Tensor | None = None) -> int | MixedRows:
    numbers = set(texts.tolist())
    return MixedRows(texts, slots) if len(numbers) > 1 else numbers.pop()


def _with_rows(output: torch.Tensor, places: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return an output with other rows at some places.

    Where a row has more labels than others, these have a logit of negative infinity for them.
    """
    size = max(output.shape[-1], rows.shape[-1])
    wide, own = (
        torch.nn.functional.pad(each, (0, size - each.shape[-1]), value=-torch.inf)
        for each in (output, rows)
    )
    return wide.index_copy(0, places, own)


def _low_rank(
    files: LoraFiles,
    name: str,
    layer: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
) -> LowRank:
    (inputs, outputs), rank = linear_sizes(layer) or (0, 0), files.settings.rank(name)
    down, up = (
        _tensor(files, f"{name}.lora_{part}.weight", tensors, shape)
        for part, shape in (("A", (rank, inputs)), ("B", (outputs, rank)))
    )
    device = _device(layer)
    return LowRank(down.to(device, dtype), up.to(device, dtype), files.settings.scaling(name))


def _saved(
    files: LoraFiles,
    name: str,
    layer: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
) -> SavedLayer:
    if not isinstance(layer, torch.nn.Linear):
        raise _misfit(files, f"has {name}, which is no linear layer of the model")
    inputs, outputs = layer.in_features, layer.out_features
    if files.settings.task_type in LABELLED and name in HEADS and f"{name}.weight" in tensors:
        outputs = len(tensors[f"{name}.weight"])
    weight = _tensor(files, f"{name}.weight", tensors, (outputs, inputs))
    device = _device(layer)
    if layer.bias is None:
        return SavedLayer(weight.to(device, dtype), None)
    bias = _tensor(files, f"{name}.bias", tensors, (outputs,))
    return SavedLayer(weight.to(device, dtype), bias.to(device, dtype))


def _tensor(
    files: LoraFiles, name: str, tensors: Mapping[str, torch.Tensor], shape: tuple[int, ...]
) -> torch.Tensor:
    """Return a tensor of an adapter, which must have a shape."""
    if name not in tensors:
        raise _misfit(files, f"has no {name}")
    if tensors[name].shape != shape:
        own = list(tensors[name].shape)
        raise _misfit(files, f"has a {name} of shape {own}, and the model needs {list(shape)}")
    return tensors[name]


def _device(layer: Any) -> torch.device:
    device: torch.device = layer.weight.device
    return device


def _misfit(files: LoraFiles, problem: str) -> WrongCheckpoint:
    base = files.settings.base_model_name_or_path
    trained = f"; it was trained for {base}" if base else ""
    return WrongCheckpoint(
        str(files.weights), problem, f"use an adapter of handler.model_name{trained}"
    )
