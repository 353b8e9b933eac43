"""Vision language models for openvino-genai: the vectors of prompts, and the decoder.

openvino-genai preprocesses the images of some families in another way, and gets other pixels
than transformers does. So the checkpoint's own code makes the vectors of the tokens and images of
a prompt, and openvino-genai's continuous batching runs the decoder on them. Two folders have the
export: the checkpoint without the layers of its decoder, and the decoder in the files that
optimum-intel writes of a LLaVA, whatever the family is.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    AutoModel,
    CLIPVisionConfig,
    GenerationConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
)

from ..batching.padding import Tensors
from ..checkpoints.model_spec import ModelSpec
from ..errors import WrongCheckpoint, summarize
from ..generation.generator import Prompt, join_media
from ..model import ForwardOnlyModel
from ..tasks.image_text_to_text import image_token

EMBEDDER, DECODER = "embedder", "decoder"
DECODER_FILE = "openvino_language_model.xml"
INPUTS = ("input_ids", "attention_mask")
REMEDY = "use save_mode: pretrained"
# What a decoder may be told of a prompt: openvino-genai counts positions from 0 on, and has a
# token attend to all earlier ones.
KNOWN = ("inputs_embeds", "attention_mask", "position_ids", "cache_position")
# A vision tower that stands for the checkpoint's where the decoder is exported.
NO_VISION = {
    **{"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1},
    **{"num_hidden_layers": 1, "image_size": 4, "patch_size": 2},
}
# The sides of the images with which an export is compared with its checkpoint, and a text.
SIDES = ((48, 40), (64, 96))
TEXT = "What is it?"
# The largest difference of logits, relative to the largest one.
TOLERANCE = 1e-3


class Embedder:
    """Makes the vectors that the decoder of a checkpoint reads.

    Args:
        module: the checkpoint, with or without the layers of its decoder.
    """

    def __init__(self, module: PreTrainedModel) -> None:
        self._module, self._lock = module, threading.Lock()
        self._last: tuple[Prompt, Mapping[str, Any]] | None = None
        self._seen: Mapping[str, Any] = {}
        module.get_decoder().register_forward_pre_hook(self._see, with_kwargs=True)

    @classmethod
    def read(cls, folder: Path, dtype: str) -> Embedder:
        """Read what :func:`export` has written.

        Raises:
            WrongCheckpoint: it cannot be read.
        """
        try:
            module = AutoModel.from_pretrained(
                folder, dtype=getattr(torch, dtype), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # noqa: BLE001 - each file format has its own error types
            raise WrongCheckpoint(
                EMBEDDER, f"cannot be read ({summarize(error)})", "pack the model again"
            ) from None
        return cls(module.eval().requires_grad_(requires_grad=False))

    def inputs(self, batch: Tensors) -> Mapping[str, Any]:
        """Return what the decoder reads of a batch, by the names of its arguments."""
        dtype = self._module.dtype
        moved = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in batch.items()
        }
        with self._lock, torch.inference_mode():
            self._module(**moved, use_cache=False)
            seen, self._seen = self._seen, {}
        return seen

    def vectors(self, batch: Tensors) -> torch.Tensor:
        """Return the vectors of a batch in float32. Shape: (rows, tokens, width)."""
        vectors: torch.Tensor = self.inputs(batch)["inputs_embeds"]
        return vectors.float()

    def of_prompt(self, prompt: Prompt) -> Mapping[str, Any]:
        """Return the vectors of a prompt as a command has them: numbers in base64, and a shape.

        The sequences of a prompt start one after another, and share them.
        """
        last = self._last
        if last and last[0] is prompt:
            return last[1]
        vectors = self.vectors(batch_of(prompt)).numpy()
        found = {"vectors": base64.b64encode(vectors.tobytes()).decode(), "shape": vectors.shape}
        self._last = (prompt, found) if prompt.backend_sequences > 1 else None
        return found

    def _see(self, _decoder: Any, _inputs: Any, named: Mapping[str, Any]) -> None:
        self._seen = named


def batch_of(prompt: Prompt) -> Tensors:
    """Return the model inputs of one prompt."""
    tokens = {name: torch.tensor([list(each)]) for name, each in prompt.features.items()}
    return {
        **tokens,
        "attention_mask": torch.ones_like(tokens["input_ids"]),
        **join_media([prompt]),
    }


class DecoderGraph(ForwardOnlyModel):
    """The exported decoder, which reads whole prompts.

    Args:
        embedder: makes the vectors.
        compiled: OpenVINO's compiled model.
    """

    def __init__(self, embedder: Embedder, compiled: Any) -> None:
        self._embedder, self._request = embedder, compiled.create_infer_request()

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        mask = batch["attention_mask"]
        inputs = {
            "inputs_embeds": self._embedder.vectors(dict(batch)),
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
            "beam_idx": torch.arange(len(mask), dtype=torch.int32),
        }
        self._request.reset_state()
        outputs = self._request.infer({name: each.numpy() for name, each in inputs.items()})
        return {"logits": torch.from_numpy(outputs["logits"].copy())}


def examples(spec: ModelSpec) -> list[Tensors]:
    """Return a text, and prompts with one image each."""
    processor: Any = spec.checkpoint.processor
    generator, token = np.random.default_rng(0), image_token(processor)
    pixels = [generator.integers(0, 256, (*sides, 3), dtype=np.uint8) for sides in SIDES]
    images = [Image.fromarray(each) for each in pixels]
    texts = [processor(text=[TEXT], return_tensors="pt")]
    shown = [
        processor(text=[f"{token}{TEXT}"], images=[[each]], return_tensors="pt") for each in images
    ]
    return [dict(each) for each in (*texts, *shown)]


def check_logits(
    model: DecoderGraph, batches: Sequence[Tensors], expected: Sequence[torch.Tensor]
) -> None:
    """Check that an export has the logits of its checkpoint.

    Raises:
        WrongCheckpoint: they differ.
    """
    for batch, logits in zip(batches, expected, strict=True):
        difference = float((model.forward(batch)["logits"] - logits).abs().max())
        # `difference > ...` would be false for NaN.
        if not difference <= TOLERANCE * max(1.0, float(logits.abs().max())):
            raise WrongCheckpoint(
                DECODER_FILE, f"its logits differ from the checkpoint's by {difference:.2g}", REMEDY
            )


def check_decoder(module: PreTrainedModel, batches: Sequence[Tensors]) -> None:
    """Check that the decoder reads nothing but vectors in their order.

    Raises:
        WrongCheckpoint: it reads more, so that openvino-genai would write other texts.
    """
    embedder = Embedder(module)
    for batch in batches:
        if reason := _what_else(embedder.inputs(batch)):
            raise WrongCheckpoint(
                "config.json",
                f"is of a {module.config.model_type} model, {reason}, which openvino-genai does not"
                " do for vectors of images",
                REMEDY,
            )


def _what_else(inputs: Mapping[str, Any]) -> str | None:
    """Return what a decoder reads besides vectors in their order; None if that is nothing."""
    given = {name: each for name, each in inputs.items() if _has_tensors(each)}
    if other := next((name for name in given if name not in KNOWN), None):
        return f"whose decoder also takes {other}"
    if isinstance(given.get("attention_mask"), Mapping):
        return "whose decoder takes attention masks that are made for images"
    positions = given.get("position_ids")
    if positions is None:
        return None
    if positions.ndim > 2:
        return f"whose decoder takes positions on {len(positions)} axes"
    counted = torch.arange(positions.shape[-1])
    return None if (positions == counted).all() else "whose decoder takes positions from elsewhere"


def _has_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_tensors, value))
    return isinstance(value, torch.Tensor)


def export(
    spec: ModelSpec, module: PreTrainedModel, target: Path, convert: Callable[[Path, Path], None]
) -> None:
    """Write the decoder, and the checkpoint without the layers of its decoder.

    Args:
        module: the checkpoint; it lacks the layers afterwards.
        convert: exports the LLaVA in the first folder to the second one.
    """
    with TemporaryDirectory(dir=target) as temporary:
        as_llava(module).save_pretrained(temporary)
        convert(Path(temporary), target / DECODER)
    decoder = module.get_decoder()
    decoder.layers = torch.nn.ModuleList()
    text = module.config.get_text_config()
    text.num_hidden_layers = 0
    if getattr(text, "layer_types", None):
        text.layer_types = []
    base = module.base_model.to(spec.checkpoint.config.dtype or torch.float32)
    base.save_pretrained(target / EMBEDDER)


def as_llava(module: PreTrainedModel) -> PreTrainedModel:
    """Return a LLaVA with the decoder and the head of a checkpoint, and a vision tower for show."""
    head, decoder = module.get_output_embeddings(), module.get_decoder()
    text, vision = module.config.get_text_config(), CLIPVisionConfig(**NO_VISION)
    is_tied = head.weight is module.get_input_embeddings().weight
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_id=0, tie_word_embeddings=is_tied
    )
    with torch.device("meta"):
        llava: Any = LlavaForConditionalGeneration(config)
    projector = type(llava.model.multi_modal_projector)
    llava.model.vision_tower = AutoModel.from_config(vision)
    llava.model.multi_modal_projector = projector(config)
    llava.model.language_model, llava.lm_head = decoder, head
    # The settings of texts are the checkpoint's, and no part of the decoder.
    llava.generation_config = GenerationConfig()
    loaded: PreTrainedModel = llava.float().eval()
    return loaded
