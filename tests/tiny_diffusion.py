"""A tiny pipeline of Stable Diffusion's kind, seeded, whose images depend on their prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

POSITIONS = 32
# Of an image, in pixels.
SIDE = 16


def write(folder: Path, seed: int = 0, **components: Any) -> Path:
    """Write a checkpoint; `components` replace those of the pipeline."""
    from diffusers import (  # noqa: PLC0415 - takes seconds
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )

    tokenizer = write_tokenizer(folder)
    end = len(tokenizer) - 1
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        num_attention_heads=2,
        max_position_embeddings=POSITIONS,
        bos_token_id=end - 1,
        eos_token_id=end,
        pad_token_id=end,
        **sizes,
    )
    blocks: dict[str, Any] = {"layers_per_block": 1, "norm_num_groups": 4}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        parts: dict[str, Any] = {
            "tokenizer": tokenizer,
            "text_encoder": CLIPTextModel(text),
            "unet": UNet2DConditionModel(
                sample_size=SIDE // 2,
                block_out_channels=(8,),
                down_block_types=("CrossAttnDownBlock2D",),
                mid_block_type=None,
                up_block_types=("CrossAttnUpBlock2D",),
                cross_attention_dim=16,
                attention_head_dim=4,
                **blocks,
            ),
            "vae": AutoencoderKL(
                block_out_channels=(8, 8),
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                **blocks,
            ),
            "scheduler": DDIMScheduler(
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                clip_sample=False,
                set_alpha_to_one=False,
                steps_offset=1,
            ),
            "safety_checker": None,
            "feature_extractor": None,
        }
        # Random attention hardly reads the prompt.
        for name, weight in parts["unet"].named_parameters():
            if "attn2" in name and weight.ndim == 2:
                torch.nn.init.normal_(weight, std=0.8)
        pipeline = StableDiffusionPipeline(**{**parts, **components}, requires_safety_checker=False)
    pipeline.save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path) -> CLIPTokenizer:
    """Return a tokenizer of bytes with CLIP's marks of words, in files of a folder."""
    letters = list(bytes_to_unicode().values())
    ends = [f"{letter}</w>" for letter in letters]
    words = [*letters, *ends, "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps({word: number for number, word in enumerate(words)}))
    merges.write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(vocab=str(vocabulary), merges=str(merges), model_max_length=POSITIONS)
    vocabulary.unlink()
    merges.unlink()
    return tokenizer
