"""The weights of a checkpoint as a module of transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ..checkpoints.architecture import BASES, attends_both_ways, install_remedy
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.checkpoint_files import check_weights
from ..checkpoints.dtypes import (
    check_dtype,
    check_float32_only,
    missing_package,
    pick_dtype,
    quantization_method,
)
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.nomic_bert import is_translated
from ..checkpoints.placement import compute_device, placement_arguments
from ..checkpoints.pooling import ModelWithPooling
from ..checkpoints.static_embedding import StaticEmbedding
from ..compat.transformers import attend_both_ways, lacks_package, local_backbones, need_no_state
from ..config.handler_section import HandlerSection
from ..errors import WrongCheckpoint, WrongConfig, summarize

# Names of the layers of classifiers that compute labels.
HEADS = ("score", "classifier")


def read_weights(spec: ModelSpec) -> PreTrainedModel:
    """Load the weights into the auto class on the devices of the YAML.

    Returns:
        The model, with the reduction or in the wrapper of the task where it has one.

    Raises:
        WrongCheckpoint: the weights cannot be read or lack the head of the task.
        WrongConfig: the weights cannot be placed as the YAML specifies.
    """
    module, missing = read_without_head(spec)
    if missing:
        raise WrongCheckpoint(
            "weights",
            f"have no {missing[0]} ({len(missing)} missing), so its values would be random",
            "serve a fine-tuned checkpoint, or set handler.allow_random_head: true",
        )
    return module


def read_without_head(spec: ModelSpec) -> tuple[PreTrainedModel, Sequence[str]]:
    """Load weights as :func:`read_weights` does, also without the head of the task.

    Returns:
        The model, and the names of the tensors that it lacks; none with `allow_random_head`.
    """
    handler = spec.config.handler
    config = spec.checkpoint.config
    if quantization_method(config):
        check_dtype(config, handler)
    check_float32_only(config, handler)
    if static := StaticEmbedding.find(spec.directory):
        return _read_static(spec, static), ()
    check_weights(spec.directory, config, allow_pickle=handler.allow_pickle)
    placement = placement_arguments(spec.config, config, spec.directory, spec.device)
    try:
        module, info = _from_pretrained(spec, config, placement)
    except Exception as error:  # noqa: BLE001 - each file format has its own error types
        raise _load_error(handler, config, error) from None
    loaded: PreTrainedModel = module
    if not handler.allow_random_head:
        _check_sizes(info["mismatched_keys"])
    missing = sorted(info["missing_keys"])
    if spec.auto_class in BASES:
        pooled = [name for name in missing if name.startswith("pooler.")]
        missing = [name for name in missing if name not in pooled]
        _remove_unread_parts(loaded, "pooler_output" in spec.outputs.names, bool(pooled))
    if handler.allow_random_head:
        missing = []
    if attends_both_ways(config):
        _attend_both_ways(loaded, spec.checkpoint)
    need_no_state(loaded)
    pool_last_token(loaded, spec.checkpoint)
    if spec.wrapper:
        return spec.wrapper(loaded), missing
    return ModelWithPooling(loaded, spec.reduction()) if spec.reduction else loaded, missing


def _read_static(spec: ModelSpec, static: StaticEmbedding) -> PreTrainedModel:
    """Return static embeddings, with the reduction of the task behind them.

    Raises:
        WrongConfig: the YAML distributes layers, and there are none.
    """
    if spec.config.handler.uses_device_map:
        raise WrongConfig(
            "handler.device_map", "is set, and static embeddings have no layers", "leave it out"
        )
    dtype = pick_dtype(spec.config.handler.dtype, compute_device(spec.config, spec.device))
    module = static.model(static.config(), dtype).to(spec.device)
    return ModelWithPooling(module, spec.reduction()) if spec.reduction else module


@torch.inference_mode()
def _attend_both_ways(module: PreTrainedModel, checkpoint: Checkpoint) -> None:
    """Have a decoder attend in both directions.

    Raises:
        WrongCheckpoint: a token does not change the vector of the first one, so it does not.
    """
    attend_both_ways(module)
    (row,) = checkpoint.row_maker.rows([8])
    ids = torch.tensor([row.features["input_ids"]] * 2, device=module.device)
    ids[:, -1] = torch.arange(2)
    first, second = module(input_ids=ids).last_hidden_state[:, 0].float()
    if torch.allclose(first, second, rtol=1e-5, atol=0):
        raise WrongCheckpoint(
            "config.json",
            f"has is_causal: false, and transformers' {checkpoint.config.model_type} attends to"
            " earlier tokens alone",
            "use a checkpoint of another model type",
        )


def _check_sizes(mismatched: Iterable[tuple[str, Sequence[int], Sequence[int]]]) -> None:
    """Check that weights have the sizes that the config says.

    Args:
        mismatched: the name of each that has not, its shape, and that by the config.

    Raises:
        WrongCheckpoint: one has not.
    """
    found = sorted(mismatched)
    if not found:
        return
    name, shape, configured = found[0]
    raise WrongCheckpoint(
        "weights",
        f"have a {name} of shape {list(shape)}, and by config.json it is {list(configured)}",
        "correct the labels (id2label) or sizes in config.json, or, for a new head with random"
        " weights, set handler.allow_random_head: true",
    )


def _remove_unread_parts(module: PreTrainedModel, pools: bool, random_pooler: bool) -> None:
    """Have a base model compute what is read of it alone, without a cache.

    Args:
        pools: whether the output of its pooler is read.
        random_pooler: whether the checkpoint has no weights of its pooler.
    """
    if pools and random_pooler:
        module.pooler = None
    elif not pools and getattr(module, "pooler", None) is not None:
        module.pooler = torch.nn.Identity()
    module.config.use_cache = False


def _from_pretrained(spec: ModelSpec, config: PreTrainedConfig, placement: dict[str, Any]) -> Any:
    handler = spec.config.handler
    labels = {"num_labels": handler.num_labels} if handler.may_lack_head else {}
    renamed = spec.checkpoint.weight_names
    # A checkpoint of another library has no config.json of the model.
    own = {"config": config, "key_mapping": dict(renamed)} if renamed else {}
    with local_backbones():
        return getattr(transformers, spec.auto_class).from_pretrained(
            spec.directory,
            **own,
            dtype=_dtype(spec, config),
            use_safetensors=None if handler.allow_pickle else True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            # Otherwise the error does not say which.
            ignore_mismatched_sizes=True,
            **placement,
            **{name: value for name, value in labels.items() if value},
            **({"config": deepcopy(config)} if is_translated(config) else {}),
        )


def _dtype(spec: ModelSpec, config: PreTrainedConfig) -> torch.dtype | str:
    """Return the dtype to compute in; transformers selects it for quantized weights."""
    if quantization_method(config):
        return "auto"
    return pick_dtype(spec.config.handler.dtype, compute_device(spec.config, spec.device))


def _load_error(
    handler: HandlerSection, config: PreTrainedConfig, error: Exception
) -> WrongCheckpoint | WrongConfig:
    reason = summarize(error, 300)
    method = quantization_method(config)
    if method and lacks_package(error):
        return missing_package(method, error)
    if handler.device_map is not None and isinstance(error, ValueError):
        return WrongConfig(
            "handler.device_map",
            f"does not fit the model ({reason})",
            "assign a device to every module, and the same one to modules that share weights",
        )
    remedy = install_remedy(error) or "pack safetensors that fit the config.json"
    return WrongCheckpoint("weights", f"cannot be loaded ({reason})", remedy)


def pool_last_token(module: PreTrainedModel, checkpoint: Checkpoint) -> None:
    """Make a classifier find the last token of each row by the attention mask.

    transformers finds it by the padding id of the config. Where there is none, it takes the last
    column, and refuses a batch. A text may end with any id that were named instead.

    Args:
        module: the model; others than such classifiers stay as they are.
        checkpoint: its checkpoint, whose padding id the config gets.
    """
    config = module.config.get_text_config()
    known = getattr(config, "pad_token_id", None)
    head = next((getattr(module, name) for name in HEADS if hasattr(module, name)), None)
    classifies_texts = "ForSequenceClassification" in type(module).__name__
    if head is None or not classifies_texts or (known is not None and known >= 0):
        return
    module.config.pad_token_id = config.pad_token_id = checkpoint.pad_token_id
    last_token = _LastToken()
    module.base_model.register_forward_pre_hook(last_token.read_mask, with_kwargs=True)
    head.register_forward_hook(last_token.repeat)


class _LastToken:
    """Repeats the output for the last token of a row in every column, whichever one is read."""

    def __init__(self) -> None:
        self._mask: torch.Tensor | None = None

    def read_mask(self, _module: Any, _inputs: Any, keywords: Mapping[str, Any]) -> None:
        """Remember the attention mask of this forward pass."""
        self._mask = keywords.get("attention_mask")

    def repeat(self, _module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        """Return the output of the head, of shape (rows, width, labels)."""
        mask = self._mask
        if mask is None or mask.ndim != 2 or mask.shape != output.shape[:2]:
            return output
        rows, width = mask.shape
        columns = torch.arange(width, device=mask.device)
        last = (mask * columns).argmax(1)
        picked = output[torch.arange(rows, device=output.device), last.to(output.device)]
        return picked[:, None].expand_as(output)
