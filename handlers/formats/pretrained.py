"""`save_mode: pretrained`: a checkpoint as `save_pretrained` lays it down, run by torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from handlers.batching import Padding
from handlers.compiling import compiled
from handlers.dtypes import pick_dtype
from handlers.errors import WrongCheckpoint, WrongConfig, short
from handlers.formats.base import Model, Wanted
from handlers.packable import Packable, packable
from handlers.packing import Packed
from handlers.placing import computing, placement, tell
from handlers.quantized import check_dtype, lacks_package, method_of
from handlers.sections import Compile, Handler

GENERATES = True


def load(wanted: Wanted) -> Model:
    """Load safetensors weights, sharded or not, into the auto class that the task asks for.

    Raises:
        WrongCheckpoint: no readable weights, or weights without the task's head.
        WrongConfig: the weights cannot go where the YAML wants them.
    """
    module = read(wanted)
    module.requires_grad_(False)
    module.eval()
    tell(wanted.config, module)
    return PretrainedModel(module, wanted.outputs)


class PretrainedModel(Model):
    """A transformers module.

    Args:
        module: the module.
        outputs: names of the wanted outputs.
    """

    def __init__(self, module: PreTrainedModel, outputs: tuple[str, ...]) -> None:
        self.module = module
        # Explanations hook into the layers, which a compiled graph does not notice.
        self._eager = module.forward
        self._outputs = outputs
        self._packable: Packable | None = None

    @torch.inference_mode()
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._named(self.module(**self._here(batch)))

    @property
    def embeddings(self) -> torch.nn.Module | None:
        embeddings: torch.nn.Module = self.module.get_input_embeddings()
        return embeddings

    def trace(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._named(self._eager(**self._here(batch)))

    def compile(self, options: Compile | None) -> bool:
        self.module.forward = compiled(self._eager, options) if options else self._eager
        return options is not None

    def pack(self, padding: Padding, per_token: tuple[str, ...]) -> bool:
        self._packable = packable(self.module, padding, self._outputs, per_token)
        return self.packs

    @property
    def packs(self) -> bool:
        return self._packable is not None

    @torch.inference_mode()
    def forward_packed(self, packed: Packed) -> Mapping[str, torch.Tensor]:
        if self._packable is None:
            raise NotImplementedError
        return self._named(self._packable.forward(packed.inputs))

    @torch.inference_mode()
    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        ids = self.module.generate(**self._here(batch), generation_config=config, **extra)
        return torch.as_tensor(ids)

    def _named(self, result: Any) -> dict[str, torch.Tensor]:
        return {name: result[name] for name in self._outputs}

    def _here(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.to(self.module.device) for name, tensor in batch.items()}


def read(wanted: Wanted) -> PreTrainedModel:
    """Read the weights into the auto class, where the YAML wants them.

    Raises:
        WrongCheckpoint: no readable weights, or weights without the task's head.
        WrongConfig: the weights cannot go where the YAML wants them.
    """
    handler = wanted.config.handler
    config = wanted.checkpoint.config
    if method_of(config):
        check_dtype(config, handler)
    places = placement(wanted.config, config, wanted.directory, wanted.device)
    try:
        module, info = _from_pretrained(wanted, config, places)
    except Exception as error:  # noqa: BLE001 - each file format raises errors of its own
        raise _complaint(handler, config, error) from None
    missing = sorted(info["missing_keys"])
    if missing and not handler.allow_random_head:
        raise WrongCheckpoint(
            "weights",
            f"have no {missing[0]} ({len(missing)} missing), so its values would be random",
            "serve a fine-tuned checkpoint, or set handler.allow_random_head: true",
        )
    loaded: PreTrainedModel = module
    return loaded


def _from_pretrained(wanted: Wanted, config: PreTrainedConfig, places: dict[str, Any]) -> Any:
    handler = wanted.config.handler
    labels = {"num_labels": handler.num_labels} if handler.allow_random_head else {}
    return getattr(transformers, wanted.auto_class).from_pretrained(
        wanted.directory,
        dtype=_dtype(wanted, config),
        use_safetensors=None if handler.allow_pickle else True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        **places,
        **{name: value for name, value in labels.items() if value},
    )


def _dtype(wanted: Wanted, config: PreTrainedConfig) -> torch.dtype | str:
    """Return what to compute in; for quantized weights transformers knows it."""
    if method_of(config):
        return "auto"
    return pick_dtype(wanted.config.handler.dtype, computing(wanted.config, wanted.device))


def _complaint(
    handler: Handler, config: PreTrainedConfig, error: Exception
) -> WrongCheckpoint | WrongConfig:
    reason = short(error, 300)
    method = method_of(config)
    # Without gptqmodel, transformers 5.5 goes on until it uses one of its names.
    if method and isinstance(error, (ImportError, NameError)):
        return lacks_package(method, error)
    if handler.device_map is not None and isinstance(error, ValueError):
        return WrongConfig(
            "handler.device_map",
            f"does not fit the model ({reason})",
            "give every part of the model a place, and those that share weights the same one",
        )
    return WrongCheckpoint(
        "weights", f"cannot be loaded ({reason})", "pack safetensors that fit the config.json"
    )
