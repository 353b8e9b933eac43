"""Runs the pipeline of a diffusers checkpoint with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..checkpoints.checkpoint_files import check_components
from ..checkpoints.diffusion import DiffusionCheckpoint, import_diffusers
from ..checkpoints.dtypes import pick_dtype
from ..checkpoints.model_spec import ModelSpec
from ..config.messages import enumerate_names, quote
from ..config.model_config import ModelConfig
from ..errors import Unprocessable, WrongCheckpoint, WrongConfig, summarize
from ..tasks.text_to_image import ImageCall, ImageModel, PipelineImage

# Those of diffusers that need no further packages, take any number of steps, and are in use.
SCHEDULERS = (
    "DDIMScheduler",
    "DPMSolverMultistepScheduler",
    "EulerAncestralDiscreteScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "PNDMScheduler",
    "UniPCMultistepScheduler",
)


def load_pipeline(spec: ModelSpec, checkpoint: DiffusionCheckpoint) -> ImageModel:
    """Load the components of a checkpoint, whose weights are safetensors.

    Raises:
        WrongCheckpoint: a component is missing, cannot be loaded or lacks weights.
        WrongConfig: the YAML sets a key that pipelines do not have.
    """
    _check_keys(spec.config)
    check_components(spec.directory)
    diffusers = import_diffusers()
    try:
        pipeline = diffusers.AutoPipelineForText2Image.from_pretrained(
            spec.directory,
            dtype=pick_dtype(spec.config.handler.dtype, spec.device),
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        pipeline.to(spec.device)
    except Exception as error:  # noqa: BLE001 - each component has its own error types
        raise WrongCheckpoint(
            "weights",
            f"of {checkpoint.index.pipeline} cannot be loaded ({summarize(error, 300)})",
            "pack safetensors that fit the config.json of each component",
        ) from None
    return DiffusionModel(pipeline)


def _check_keys(config: ModelConfig) -> None:
    """Check that no key is set that concerns models of transformers alone."""
    handler = config.handler
    keys = {
        "handler.device_map": handler.device_map,
        "handler.model_parallel": handler.model_parallel,
        "handler.allow_pickle": handler.allow_pickle,
        "handler.allow_random_head": handler.allow_random_head,
        "torchrun": config.torchrun,
        "pt2.compile": config.pt2.compile.enable,
    }
    if name := next((name for name, value in keys.items() if value), None):
        raise WrongConfig(name, f"is set, and mode: {handler.mode} has it not", "leave it out")


class DiffusionModel(ImageModel):
    """A pipeline of diffusers.

    Images are made one after the other: in a batch of them, rounding would depend on the others.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        pipeline.set_progress_bar_config(disable=True)
        for module in pipeline.components.values():
            if isinstance(module, torch.nn.Module):
                module.requires_grad_(False).eval()
        own = pipeline.scheduler
        compatible = {each.__name__: each for each in own.compatibles} if own else {}
        self._schedulers = {name: compatible[name] for name in SCHEDULERS if name in compatible}
        self._own_scheduler = type(own)
        self._scheduler_config = own.config

    @torch.inference_mode()
    def draw(self, call: ImageCall, on_step: Callable[[int, int], None]) -> PipelineImage:
        # A scheduler keeps a state, which an error in between would leave to the next call.
        self._pipeline.scheduler = self._scheduler(call.scheduler)

        def ended(pipeline: Any, step: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
            on_step(step + 1, pipeline.num_timesteps)
            return {}

        try:
            made = self._pipeline(
                call.prompt,
                generator=torch.Generator("cpu").manual_seed(call.seed),
                output_type="np",
                callback_on_step_end=ended,
                **call.parameters,
            )
        except ValueError as error:  # how pipelines refuse what they cannot do
            raise Unprocessable(
                f"The pipeline of this model does not take these parameters ({summarize(error)})."
            ) from None
        flagged = getattr(made, "nsfw_content_detected", None)
        return PipelineImage(made.images[0], bool(flagged[0]) if flagged else None)

    def _scheduler(self, name: str | None) -> Any:
        """Return a new scheduler with the settings of the checkpoint's.

        Raises:
            Unprocessable: its settings do not fit the pipeline.
        """
        if name is None or name == self._own_scheduler.__name__:
            return self._own_scheduler.from_config(self._scheduler_config)
        if name not in self._schedulers:
            raise Unprocessable(
                f"This model has no scheduler {quote(name)}; there are"
                f" {enumerate_names(self._schedulers)}."
            )
        return self._schedulers[name].from_config(self._scheduler_config)
