"""An image to the last hidden states of a model, or to one vector.

{"inputs": "<base64>"}                                 -> [[[0.21, -1.3, …], …]], one for each patch
{"inputs": "<base64>", "parameters": {"pool": true}}   -> [[0.42, 0.07, …]]

The body may also be the bytes of the image file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ..batching.rows import Outputs
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..errors import Unprocessable, WrongCheckpoint
from ..types.embeddings import as_list
from ..types.model_info import Exports, ModelOutputs, TaskDescription
from ..types.parameters import ANY, Parameters, PipelineNames
from .bases.image import IMAGE_ROWS, ImageRow, ImageTask, image_wire
from .bases.media import MediaInput

MASKED = "vit_mae"


class ImageFeatureParameters(Parameters):
    """Parameters of the image-feature-extraction pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY, "return_tensors": (False,)}
    )

    pool: bool = False
    """Returns the output of the model's pooler: one vector an image."""


class Task(ImageTask):
    """Hidden states of images; answers as the image-feature-extraction pipeline does."""

    auto_class = "AutoModel"
    description = TaskDescription(
        image_wire(results=list[Any]),
        outputs=ModelOutputs(
            ("last_hidden_state", "pooler_output"), optional=("pooler_output",), are_vectors=True
        ),
        rows=replace(IMAGE_ROWS, smaller_results="fewer images, or pool: true"),
        exports=Exports(fastest_formats={"cpu": "openvino"}),
    )
    parameters = ImageFeatureParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        _check_whole_images(checkpoint)
        super().__init__(checkpoint, settings)

    def result_numbers(self, item: MediaInput, rows: Sequence[ImageRow]) -> int:
        size = int(getattr(self.checkpoint.config, "hidden_size", 0))
        patch = getattr(self.checkpoint.config, "patch_size", None)
        if item.parameters.pool or not isinstance(patch, int):
            return size
        return size * sum(row.size // patch**2 for row in rows)

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        name = "pooler_output" if item.parameters.pool else "last_hidden_state"
        if name not in outputs[0]:
            raise Unprocessable(
                "pool is true, and this model has no pooler; leave pool out for its hidden states."
            )
        return [as_list(outputs[0][name])]


def _check_whole_images(checkpoint: Checkpoint) -> None:
    """Refuse a masked autoencoder, which reads a random part of the patches of each image.

    Raises:
        WrongCheckpoint: it is one.
    """
    config = checkpoint.config
    if config.model_type == MASKED:
        raise WrongCheckpoint(
            "config.json",
            f"has model_type {MASKED}, which hides {config.mask_ratio:.0%} of the patches of each"
            " image at random, so that no result would be repeated",
            "set model_type: vit and architectures: [ViTModel], with which the same weights read"
            " whole images",
        )
