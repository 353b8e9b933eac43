"""LoRA adapters of a torch model, chosen for each row; run by peft."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from ..checkpoints.lora import LoraFiles, adapter_folder
from ..compat.imports import without_bitsandbytes
from ..compat.peft import activate_adapters, choose_adapters_of_rows, lora_layers
from ..errors import WrongCheckpoint, WrongConfig, summarize


class LoraAdapters:
    """The adapters that were added to a module; without a selection it computes as without them.

    Args:
        names: peft's name of each adapter.
    """

    def __init__(self, module: PreTrainedModel, names: Mapping[str, str]) -> None:
        self._names = names
        self._layers = lora_layers(module)
        self._of_rows: list[str | None] | None = None
        for layer in self._layers:
            choose_adapters_of_rows(layer, lambda: self._of_rows)
        self._select(None)

    @contextmanager
    def active(self, adapters: Sequence[str | None]) -> Iterator[None]:
        """Run the forwards in a block with adapters, by their names; None is for no adapter.

        Args:
            adapters: the name of each row's adapter. Where all are equal, the number of rows is
                free.
        """
        selected = set(adapters)
        if selected <= {None}:
            yield
            return
        if len(selected) == 1:
            self._select(*selected)
        else:
            self._of_rows = [self._names[name] if name else None for name in adapters]
        try:
            yield
        finally:
            self._of_rows = None
            self._select(None)

    @torch.inference_mode()
    def share_batches(self, module: PreTrainedModel) -> bool:
        """Return whether rows with different adapters can run together.

        They cannot where a layer sees the tokens of all rows in one list, as in OPT.
        """
        rows = [None, *self._names]
        ids = torch.zeros((len(rows), 3), dtype=torch.long, device=module.device)
        try:
            with self.active(rows):
                module(input_ids=ids)
        except (ValueError, TypeError):  # of peft, for the shape or the kind of a layer
            return False
        return True

    def _select(self, adapter: str | None) -> None:
        """Have all rows computed with one adapter, or None."""
        names = [self._names[adapter]] if adapter else []
        for layer in self._layers:
            activate_adapters(layer, names)


def load_adapters(
    module: PreTrainedModel, directory: Path, sources: Mapping[str, str]
) -> LoraAdapters | None:
    """Add adapters to a module in its data type; returns None where there are none.

    Args:
        sources: the names of the adapters, and what the YAML names for each.

    Raises:
        WrongCheckpoint: the files of an adapter are invalid, or do not fit the module.
        WrongConfig: the YAML has layers of the module on disk.
    """
    if not sources:
        return None
    if any(parameter.is_meta for parameter in module.parameters()):
        raise WrongConfig(
            "handler.adapters",
            "is set, and handler.device_map leaves a part of the model out of memory",
            "use more memory or a smaller model, or leave adapters out",
        )
    # peft's names are parts of the names of modules.
    names = {name: f"adapter_{number}" for number, name in enumerate(sources)}
    with without_bitsandbytes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, source in sources.items():
            _add(module, LoraFiles.read(adapter_folder(directory, name, source)), names[name])
        return LoraAdapters(module, names)


def _add(module: PreTrainedModel, files: LoraFiles, name: str) -> None:
    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict  # noqa: PLC0415 - see load_adapters

    unknown = next((each for each in sorted(files.modules) if not _has_module(module, each)), None)
    if unknown:
        raise _misfit(files, f"is for a model with {unknown}, which this one does not have")
    settings = files.settings
    config = LoraConfig(
        r=settings.r,
        lora_alpha=settings.lora_alpha,
        use_rslora=settings.use_rslora,
        fan_in_fan_out=settings.fan_in_fan_out,
        rank_pattern=settings.rank_pattern or {},
        alpha_pattern=settings.alpha_pattern or {},
        target_modules=sorted(files.modules),
    )
    try:
        inject_adapter_in_model(config, module, name)
        loaded = set_peft_model_state_dict(module, load_file(files.weights), name)
    except (ValueError, RuntimeError, KeyError) as error:
        raise _misfit(files, f"does not fit the model ({summarize(error, 300)})") from None
    if loaded.unexpected_keys:
        raise _misfit(files, f"has {loaded.unexpected_keys[0]}, which the model does not have")


def _has_module(module: torch.nn.Module, name: str) -> bool:
    try:
        module.get_submodule(name)
    except AttributeError:
        return False
    return True


def _misfit(files: LoraFiles, problem: str) -> WrongCheckpoint:
    base = files.settings.base_model_name_or_path
    trained = f"; it was trained for {base}" if base else ""
    return WrongCheckpoint(
        str(files.weights), problem, f"use an adapter of handler.model_name{trained}"
    )
