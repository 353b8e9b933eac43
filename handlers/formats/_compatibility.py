"""The checks of a YAML against the properties of a format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig

if TYPE_CHECKING:
    from handlers.formats.base import BaseFormat
    from handlers.tasks.base import BaseTask

# What is wrong, and what to do.
Problem = tuple[str, str]
Check = Callable[["BaseFormat", ModelConfig, "type[BaseTask[Any, Any]]"], Problem | None]


def check_compatibility(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> None:
    """Check that a format supports a task and the keys of a YAML.

    Raises:
        WrongConfig: a key or the task is not supported.
    """
    for check in CHECKS:
        if problem := check(model_format, config, task):
            raise WrongConfig(config.source, *problem)


def _check_task(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if not (task.description.exports.supported or model_format.name == "pretrained"):
        return (
            f"handler.mode is {config.handler.mode} and handler.save_mode is {model_format.name},"
            " and models of this mode are not exported",
            "use save_mode: pretrained",
        )
    if task.description.rows.kind not in model_format.row_kinds:
        return (
            f"handler.mode is {config.handler.mode} and handler.save_mode is {model_format.name},"
            f" whose graphs take {' or '.join(model_format.row_kinds)}, not"
            f" {task.description.rows.kind}",
            "use save_mode: pretrained or openvino",
        )
    if not task.description.generation.texts or task.auto_class in model_format.generates:
        return None
    remedy = (
        "pretrained" if task.description.generation.is_encoder_decoder else "openvino or pretrained"
    )
    return (
        f"handler.mode is {config.handler.mode} and handler.save_mode is {model_format.name}, which"
        " cannot generate its texts",
        f"use save_mode: {remedy}",
    )


def _check_quantization(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    quantization = config.handler.quantization
    if quantization is None:
        return None
    if quantization not in model_format.quantizations:
        return (
            f"handler.quantization is {quantization} and handler.save_mode is {model_format.name}",
            "use save_mode: openvino, or leave quantization out",
        )
    if quantization in model_format.calibrated and task.description.generation.texts:
        others = [
            each for each in model_format.quantizations if each not in model_format.calibrated
        ]
        return (
            f"handler.mode is {config.handler.mode}, which cannot be calibrated for"
            f" quantization: {quantization}",
            f"use {' or '.join(others)}",
        )
    return None


def _check_dtype(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    dtype = config.handler.dtype
    if dtype in (*model_format.dtypes, "auto"):
        return None
    return (
        f"handler.dtype is {dtype} and handler.save_mode is {model_format.name}, which computes in"
        f" {' or '.join(model_format.dtypes)}",
        "use save_mode: pretrained or openvino, or leave dtype out",
    )


def _check_shape(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    handler = config.handler
    if model_format.fixed_shape and handler.max_length is None:
        return (
            f"handler has save_mode: {model_format.name} and no max_length",
            "add max_length: 128, the one width that the graph is compiled for",
        )
    if handler.batch_size is None or model_format.takes_batch_size:
        return None
    return (
        f"handler.batch_size is {handler.batch_size} and handler.save_mode is {model_format.name}, "
        "which takes any number of rows",
        "use batchSize, TorchServe's own key, or leave it out",
    )


def _check_compile(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if model_format.takes_compile or not config.pt2.compile.enable:
        return None
    return (
        f"pt2.compile is enabled and handler.save_mode is {model_format.name}, which torch does not"
        " compile",
        "use save_mode: pretrained, or leave pt2 out",
    )


def _check_scheduling(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if not config.continuousBatching or task.description.generation.texts:
        return None
    return (
        f"continuousBatching is true and handler.mode is {config.handler.mode}",
        "use a mode that generates texts, or leave continuousBatching out",
    )


def _check_engine(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    engine = config.handler.engine
    if engine is None:
        return None
    if engine not in model_format.engines or not _continues_prompts(task):
        return (
            f"handler.engine is {engine}, handler.mode is {config.handler.mode} and"
            f" handler.save_mode is {model_format.name}",
            "use mode: text_generation with save_mode: pretrained, or leave engine out",
        )
    if not config.continuousBatching:
        return (
            f"handler.engine is {engine} and continuousBatching is not true",
            "add continuousBatching: true, or leave engine out",
        )
    chosen = [name for name, value in _not_of_engines(config).items() if value]
    if chosen:
        return (
            f"handler.engine is {engine}, which does not use {chosen[0]}",
            f"leave {chosen[0]} out, or engine",
        )
    return None


def _check_assistant(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    handler = config.handler
    if handler.assistant_model is None:
        return None
    obstacles = {
        f"handler.mode is {handler.mode}": not _continues_prompts(task),
        f"handler.save_mode is {model_format.name}": not model_format.assists,
        "continuousBatching is true": config.continuousBatching,
        "torchrun is set": config.torchrun is not None,
        "device_map or model_parallel is set": handler.uses_device_map,
    }
    obstacle = next((name for name, applies in obstacles.items() if applies), None)
    if obstacle is None:
        return None
    return (
        f"handler.assistant_model is set and {obstacle}, where no draft model can help",
        "use mode: text_generation with save_mode: pretrained, without continuousBatching,"
        " torchrun, model_parallel and device_map, or leave assistant_model out",
    )


def _check_adapter(
    model_format: BaseFormat, config: ModelConfig, task: type[BaseTask[Any, Any]]
) -> Problem | None:
    if not config.handler.adapters:
        return None
    obstacles = {
        f"handler.mode is {config.handler.mode}": not _continues_prompts(task),
        f"handler.save_mode is {model_format.name}": not model_format.takes_adapters,
        "pt2.compile is enabled": config.pt2.compile.enable,
        "continuousBatching is true": config.continuousBatching,
        "torchrun is set": config.torchrun is not None,
    }
    obstacle = next((name for name, applies in obstacles.items() if applies), None)
    if obstacle is None:
        return None
    return (
        f"handler.adapters is set and {obstacle}, where a request cannot choose an adapter",
        "use mode: text_generation with save_mode: pretrained alone, or merge one adapter into"
        " the checkpoint and leave adapters out",
    )


def _continues_prompts(task: type[BaseTask[Any, Any]]) -> bool:
    return task.description.generation.texts and not task.description.generation.is_encoder_decoder


def _not_of_engines(config: ModelConfig) -> dict[str, Any]:
    """Return the values of the keys that concern the model that torch runs."""
    handler = config.handler
    return {
        "torchrun": config.torchrun,
        "pt2.compile": config.pt2.compile.enable,
        "handler.adapters": handler.adapters,
        "handler.device_map": handler.device_map,
        "handler.model_parallel": handler.model_parallel,
        "handler.allow_pickle": handler.allow_pickle,
        "handler.allow_random_head": handler.allow_random_head,
    }


CHECKS: tuple[Check, ...] = (
    _check_task,
    _check_quantization,
    _check_dtype,
    _check_shape,
    _check_compile,
    _check_engine,
    _check_scheduling,
    _check_assistant,
    _check_adapter,
)
