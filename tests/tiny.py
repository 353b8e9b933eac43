"""Tiny checkpoints, seeded: the same weights and words on every machine, with transformers 4 and 5.

Weights are uniform numbers of numpy's PCG64, large enough that different inputs get different
answers. The vocabularies come from a short text, so that its long words split into subwords.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.glpn.image_processing_pil_glpn import GLPNImageProcessorPil
from transformers.models.segformer.image_processing_pil_segformer import SegformerImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.models.yolos.image_processing_pil_yolos import YolosImageProcessorPil

from hf_serve.handlers import tasks
from tests.modes import cases
from tests.tiny_tokenizers import POSITIONS, write_bert, write_gpt2, write_roberta, write_tapas

PYRAMID: dict[str, Any] = {
    "hidden_sizes": [8, 16, 16, 32],
    "num_attention_heads": [1, 2, 2, 2],
    "depths": [1, 1, 1, 1],
    "decoder_hidden_size": 16,
}
GENERATION = {"pad_token_id": 1, "eos_token_id": 2, "transformers_version": "4.57.0"}


def write(folder: Path, mode: str, *, family: str = "Bert", seed: int = 0, **config: Any) -> Path:
    """Write a checkpoint of two layers with 32 dimensions for a mode.

    Args:
        folder: the folder of the checkpoint, which is created.
        mode: the mode whose head the model has.
        family: Bert (WordPiece) or Roberta (byte-level BPE); for text generation GPT-2, Llama
            or Mistral.
        seed: the seed of the weights.
        config: further values of the model's config.
    """
    folder.mkdir(parents=True, exist_ok=True)
    task, labels = tasks.get(mode), cases(mode).labels
    config = {**cases(mode).config, **config}
    if write_own := cases(mode).write:
        write_own(folder, config, seed)
        return folder
    if task.description.generation.is_encoder_decoder:
        return _write_encoder_decoder(folder, "T5" if family == "Bert" else family, config, seed)
    if task.description.wire.reads_media:
        return _write_vision(folder, task.auto_class, {**_named(labels), **config}, seed)
    if task.description.generation.texts:
        ids = {name: write_gpt2(folder) for name in ("bos_token_id", "eos_token_id")}
        if family in ("Llama", "Mistral"):
            llama = {"vocab_size": 400, **tiny_sizes()}
            write_model(folder, family, "ForCausalLM", {**llama, **ids, **config}, seed)
            return folder
        gpt2 = {
            "vocab_size": 400,
            "n_positions": POSITIONS,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 2,
        }
        write_model(folder, "GPT2", "LMHeadModel", {**gpt2, **ids, **config}, seed)
        return folder
    head = task.auto_class.removeprefix("AutoModel") or "Model"
    if head == "ForTableQuestionAnswering":
        values = {**tiny_sizes(), **write_tapas(folder), "max_position_embeddings": 512, **config}
        write_model(folder, "Tapas", "ForQuestionAnswering", values, seed)
        return folder
    tokens = write_bert(folder) if family == "Bert" else write_roberta(folder)
    write_model(folder, family, head, {**tiny_sizes(), **tokens, **_named(labels), **config}, seed)
    return folder


def _named(labels: Sequence[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels))} if labels else {}


def _write_vision(folder: Path, auto_class: str, config: dict[str, Any], seed: int) -> Path:
    """Write a vision model for images of 32 pixels a side, or of sides near it."""
    head = auto_class.removeprefix("AutoModel") or "Model"
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 8}
    sizes: dict[str, Any] = {"image_size": 32, "hidden_size": 32, "intermediate_size": 64, **layers}
    if head == "ForObjectDetection":
        # Rows of other shapes where the sides of images have other proportions.
        size = {"shortest_edge": 32, "longest_edge": 64}
        YolosImageProcessorPil(size=size).save_pretrained(folder)
        sizes |= {"image_size": [32, 32], "num_detection_tokens": 5}
        write_model(folder, "Yolos", head, {**sizes, **config}, seed)
    elif head == "ForDepthEstimation":
        GLPNImageProcessorPil().save_pretrained(folder)
        # With larger weights, most of its depths would be 0 or 10.
        write_model(folder, "GLPN", head, {**PYRAMID, **config}, seed, most=0.3)
    elif head == "ForSemanticSegmentation":
        SegformerImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
        write_model(folder, "Segformer", head, {**PYRAMID, **config}, seed, most=0.3)
    elif head == "ForImageTextToText":
        ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
        end = write_gpt2(folder)
        ids = dict.fromkeys(("decoder_start_token_id", "eos_token_id", "pad_token_id"), end)
        gpt2 = {"model_type": "gpt2", "is_decoder": True, "add_cross_attention": True}
        text = {"vocab_size": 400, "n_positions": POSITIONS, "n_embd": 32, "n_layer": 2}
        parts = {
            "encoder": {"model_type": "vit", **sizes},
            "decoder": {**gpt2, **text, "n_head": 2},
        }
        generation = {**GENERATION, **ids, "bos_token_id": end}
        (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
        write_model(folder, "VisionEncoderDecoder", "Model", {**parts, **ids, **config}, seed)
    elif head == "ForZeroShotImageClassification":
        CLIPImageProcessorPil(size=32, crop_size=32).save_pretrained(folder)
        ends = {"eos_token_id": 2, "bos_token_id": 0, "projection_dim": 32}
        text = {**tiny_sizes(), **write_roberta(folder), **ends}
        values = {"text_config": text, "vision_config": sizes, "projection_dim": 32}
        write_model(folder, "CLIP", "Model", {**values, **config}, seed)
    else:
        ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
        write_model(folder, "ViT", head, {**sizes, **config}, seed)
    return folder


def _write_encoder_decoder(folder: Path, family: str, config: dict[str, Any], seed: int) -> Path:
    """Write an encoder-decoder: T5, or BART and the families of its kind.

    `generation` in the values are those of its generation_config.json, which it has none without.
    """
    tokens = write_roberta(folder)
    ends = {"pad_token_id": 1, "eos_token_id": 2, "vocab_size": tokens["vocab_size"]}
    t5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    bart = {
        "d_model": 32,
        "max_position_embeddings": POSITIONS,
        **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
        **{f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")},
        **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
    }
    start = {"decoder_start_token_id": 1 if family in ("T5", "Marian") else 2}
    sizes = t5 if family == "T5" else {**bart, "bos_token_id": 0, "forced_eos_token_id": None}
    if generation := config.pop("generation", None):
        text = json.dumps({**GENERATION, **start, **generation})
        (folder / "generation_config.json").write_text(text, encoding="utf-8")
    head = "MTModel" if family == "Marian" else "ForConditionalGeneration"
    write_model(folder, family, head, {**sizes, **ends, **start, **config}, seed)
    return folder


def digest(folder: Path) -> str:
    """Return a fingerprint of the weights and the vocabulary."""
    weights = (folder / "model.safetensors").read_bytes()
    return hashlib.sha256(weights + _vocabulary(folder)).hexdigest()


def _vocabulary(folder: Path) -> bytes:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return (folder / "vocab.txt").read_bytes()
    document = json.loads(path.read_text(encoding="utf-8"))
    return json.dumps(document["model"]["vocab"], sort_keys=True).encode()


def tiny_sizes() -> dict[str, int]:
    """Return the sizes of a tiny model."""
    heads = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {**heads, "intermediate_size": 64, "max_position_embeddings": POSITIONS}


def write_model(
    folder: Path, family: str, head: str, values: dict[str, Any], seed: int, most: float = 0.8
) -> None:
    """Write a model whose weights are between `-most` and `most`."""
    config = getattr(transformers, f"{family}Config")(**values)
    config.architectures = [f"{family}{head}"]
    config.save_pretrained(folder)
    model = getattr(transformers, f"{family}{head}")(config)
    random = np.random.Generator(np.random.PCG64(seed))
    weights = {
        name: _weight(name, parameter, random, most)
        for name, parameter in sorted(model.named_parameters())
    }
    weights |= {
        f"{name}.{statistic}": each.numpy()
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
        for statistic, each in module.named_buffers()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _weight(name: str, parameter: torch.Tensor, random: np.random.Generator, most: float) -> Any:
    """Return uniform numbers for a matrix; a norm keeps its ones and a bias its zeros.

    The heads of TAPAS are vectors, named `output_weights`, as is the `class_embedding` of CLIP.
    """
    if parameter.ndim < 2 and not name.endswith(("output_weights", "class_embedding")):
        return parameter.detach().numpy()
    return (random.random(tuple(parameter.shape)) * 2 * most - most).astype(np.float32)


class Traitor:
    """Creates a file where it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)
