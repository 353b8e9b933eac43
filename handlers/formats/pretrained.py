"""`save_mode: pretrained`: a checkpoint as `save_pretrained` lays it down, run by torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel

from handlers.batching.packing import PackedBatch
from handlers.batching.padding import Padding
from handlers.checkpoints.dtypes import pick_dtype
from handlers.checkpoints.model_spec import ModelSpec
from handlers.checkpoints.placement import compute_device, log_placement, placement_arguments
from handlers.checkpoints.prequantized import check_dtype, missing_package, quantization_method
from handlers.config.handler_section import Compile, HandlerSection
from handlers.errors import WrongCheckpoint, WrongConfig, summarize
from handlers.formats._packable import Packable, as_packable
from handlers.formats.base import BaseFormat
from handlers.runtime.model import Model


class Format(BaseFormat):
    """The checkpoint itself, run by torch."""

    generates = True
    takes_compile = True
    takes_batch_size = True  # TorchServe's example has the key in every YAML.

    def load(self, spec: ModelSpec) -> Model:
        """Load safetensors weights, sharded or not, into the auto class of the task.

        Raises:
            WrongCheckpoint: no readable weights, or weights without the task's head.
            WrongConfig: the weights cannot be placed where the YAML says.
        """
        module = read_weights(spec)
        module.requires_grad_(False)
        module.eval()
        log_placement(spec.config, module)
        return PretrainedModel(module, spec.outputs)


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

    def forward_with_gradients(
        self, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        return self._named(self._eager(**self._here(batch)))

    def compile(self, options: Compile | None) -> bool:
        self.module.forward = compiled(self._eager, options) if options else self._eager
        return options is not None

    def pack(self, padding: Padding, per_token: tuple[str, ...]) -> bool:
        self._packable = as_packable(self.module, padding, self._outputs, per_token)
        return self.packs

    @property
    def packs(self) -> bool:
        return self._packable is not None

    @torch.inference_mode()
    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
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


def read_weights(spec: ModelSpec) -> PreTrainedModel:
    """Read the weights into the auto class, on the devices that the YAML names.

    Raises:
        WrongCheckpoint: no readable weights, or weights without the task's head.
        WrongConfig: the weights cannot be placed where the YAML says.
    """
    handler = spec.config.handler
    config = spec.checkpoint.config
    if quantization_method(config):
        check_dtype(config, handler)
    places = placement_arguments(spec.config, config, spec.directory, spec.device)
    try:
        module, info = _from_pretrained(spec, config, places)
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


def _from_pretrained(spec: ModelSpec, config: PreTrainedConfig, places: dict[str, Any]) -> Any:
    handler = spec.config.handler
    labels = {"num_labels": handler.num_labels} if handler.allow_random_head else {}
    return getattr(transformers, spec.auto_class).from_pretrained(
        spec.directory,
        dtype=_dtype(spec, config),
        use_safetensors=None if handler.allow_pickle else True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        **places,
        **{name: value for name, value in labels.items() if value},
    )


def _dtype(spec: ModelSpec, config: PreTrainedConfig) -> torch.dtype | str:
    """Return what to compute in; for quantized weights transformers knows it."""
    if quantization_method(config):
        return "auto"
    return pick_dtype(spec.config.handler.dtype, compute_device(spec.config, spec.device))


def _complaint(
    handler: HandlerSection, config: PreTrainedConfig, error: Exception
) -> WrongCheckpoint | WrongConfig:
    reason = summarize(error, 300)
    method = quantization_method(config)
    # Without gptqmodel, transformers 5.5 goes on until it uses one of its names.
    if method and isinstance(error, (ImportError, NameError)):
        return missing_package(method, error)
    if handler.device_map is not None and isinstance(error, ValueError):
        return WrongConfig(
            "handler.device_map",
            f"does not fit the model ({reason})",
            "give every part of the model a place, and those that share weights the same one",
        )
    return WrongCheckpoint(
        "weights", f"cannot be loaded ({reason})", "pack safetensors that fit the config.json"
    )


def compiled(forward: Callable[..., Any], options: Compile) -> Callable[..., Any]:
    """Return a forward that is compiled when it is first called.

    Shapes are dynamic unless the YAML says otherwise, so that a new length compiles nothing.
    """
    return torch.compile(
        forward,
        backend=options.backend,
        mode=options.mode,
        dynamic=True if options.dynamic is None else options.dynamic,
        fullgraph=options.fullgraph,
        options=options.options,
    )
