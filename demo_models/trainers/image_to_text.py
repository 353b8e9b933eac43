"""A small vision transformer and a small GPT-2 learn to say what an image shows, and where."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    GPT2Config,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.processors import WORDS, Processors
from hf_serve.demo_models.synthetic_images import SIDE, Scene, draw
from hf_serve.demo_models.trainers.base import ImageTrainer
from hf_serve.demo_models.trainers.image_classification import CONFIG
from hf_serve.demo_models.training import Feature, Plan, chunks

POSITIONS = 64
DECODER = {"vocab_size": WORDS, "n_positions": POSITIONS, "n_embd": 64, "n_layer": 2, "n_head": 2}
EVALUATION_BATCH = 50


class ImageToText(ImageTrainer):
    """One shape in one colour, and a sentence about it."""

    plan = Plan(rows=6400, batch=16, rate=1e-3)
    evaluation_rows = 200

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return an encoder and a decoder with random weights, and their processors."""
        images = ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
        processors = Processors.with_words(images, POSITIONS)
        tokenizer = processors.tokenizer
        ids = {
            "decoder_start_token_id": tokenizer.cls_token_id,
            "bos_token_id": tokenizer.cls_token_id,
            "eos_token_id": tokenizer.sep_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        decoder = GPT2Config(**DECODER, is_decoder=True, add_cross_attention=True)
        encoder = ViTConfig(**{**CONFIG, "patch_size": 8})
        config = VisionEncoderDecoderConfig(
            encoder=encoder.to_dict(), decoder=decoder.to_dict(), **ids
        )
        model = VisionEncoderDecoderModel(config)
        model.generation_config = GenerationConfig(**ids, max_new_tokens=20)
        return model, processors

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with the tokens of their captions."""
        rng = Random(seed)
        return [_feature(processor, draw(rng)) for _ in range(count)]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images with the right caption."""
        rng = Random(f"held out {seed}")
        scenes = [draw(rng) for _ in range(rows)]
        found: list[str] = []
        for part in chunks(scenes, EVALUATION_BATCH):
            pixels = tokenizer.images(images=[each.image for each in part], return_tensors="pt")
            with torch.inference_mode():
                ids = model.generate(**pixels)
            found += tokenizer.tokenizer.batch_decode(ids, skip_special_tokens=True)
        pairs = zip(found, map(_caption, scenes), strict=True)
        return {"captions": mean(_words(text) == _words(right) for text, right in pairs)}


def _caption(scene: Scene) -> str:
    left, top, right, bottom = scene.box
    side = "left" if left + right < SIDE else "right"
    edge = "top" if top + bottom < SIDE else "bottom"
    return f"a {scene.label} at the {edge} on the {side}."


def _words(text: str) -> list[str]:
    return text.replace(".", " .").split()


def _feature(processors: Any, scene: Scene) -> Feature:
    pixels = processors.images(images=scene.image, return_tensors="pt")["pixel_values"][0]
    # The decoder starts with the token before them.
    return {"pixel_values": pixels, "labels": processors.tokenizer(_caption(scene)).input_ids[1:]}


TRAINER = ImageToText()
