"""A checkpoint of diffusers: a folder with the components of a pipeline, such as Stable Diffusion.

It has a `model_index.json` in place of a `config.json`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import transformers
from transformers import PreTrainedConfig

from ..config.handler_section import HandlerSection
from ..errors import WrongCheckpoint
from ..process.packages import require_package
from .checkpoint import Checkpoint
from .checkpoint_files import MODEL_INDEX, ModelIndex, missing_pipeline

INSTALL = 'pip install "diffusers>=0.42.1,<0.43"'
# Between the steps the deadline is checked, and each image has a seed.
REQUIRED = ("callback_on_step_end", "generator", "output_type")


def import_diffusers() -> Any:
    """Import diffusers, which takes seconds.

    It logs errors only: a warning has the part of a prompt that is cut.

    Raises:
        WrongConfig: it is not installed.
    """
    diffusers = require_package("diffusers", "mode: text_to_image", INSTALL)
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    return diffusers


@dataclass(frozen=True)
class DiffusionCheckpoint(Checkpoint):
    """A diffusers checkpoint without its weights; its config has the name of its pipeline."""

    index: ModelIndex

    @classmethod
    def read(cls, directory: Path, handler: HandlerSection) -> Self:
        """Read the `model_index.json` in a directory.

        Raises:
            WrongCheckpoint: it is missing or invalid.
        """
        if not (directory / MODEL_INDEX).is_file():
            raise missing_pipeline(directory)
        index = ModelIndex.read(directory / MODEL_INDEX)
        config = PreTrainedConfig(architectures=[index.pipeline], name_or_path=str(directory))
        return cls(directory, config, handler, index)

    def check(self, auto_class: str) -> None:
        """Check that the pipeline makes images of texts, and that its classes are known.

        Raises:
            WrongCheckpoint: it does not, or a component needs custom code.
        """
        diffusers = import_diffusers()
        for name, (library, class_name) in self.index.components.items():
            if not hasattr(_module(diffusers, library), class_name):
                raise WrongCheckpoint(
                    MODEL_INDEX,
                    f"has the component {name} of {library}.{class_name}, which neither diffusers"
                    " nor transformers has",
                    "use a checkpoint without custom code",
                )
        missing = [name for name in REQUIRED if name not in self.call_parameters]
        if missing:
            raise WrongCheckpoint(
                MODEL_INDEX,
                f"names {self.index.pipeline}, whose calls have no {missing[0]}",
                "use another pipeline, such as Stable Diffusion",
            )

    @cached_property
    def pipeline_class(self) -> type[Any]:
        """The class of the pipeline.

        Raises:
            WrongCheckpoint: it makes no images of texts.
        """
        import_diffusers()
        # The mapping is no part of the package's public names.
        from diffusers.pipelines import auto_pipeline  # noqa: PLC0415

        mapping = auto_pipeline.AUTO_TEXT2IMAGE_PIPELINES_MAPPING
        found = {each.__name__: each for each in mapping.values()}.get(self.index.pipeline)
        if found is None:
            raise WrongCheckpoint(
                MODEL_INDEX,
                f"names {self.index.pipeline}, which AutoPipelineForText2Image does not support",
                "use a checkpoint of a pipeline for text to image",
            )
        pipeline: type[Any] = found
        return pipeline

    @cached_property
    def call_parameters(self) -> dict[str, Any]:
        """The parameters of a call of the pipeline, with their defaults."""
        signature = inspect.signature(self.pipeline_class.__call__)
        return {name: each.default for name, each in signature.parameters.items()}


def _module(diffusers: Any, library: str) -> Any:
    """Return the module of a component: a library, or the pipelines' own folder of that name."""
    libraries = {"diffusers": diffusers, "transformers": transformers}
    return libraries.get(library) or getattr(diffusers.pipelines, library, None)
