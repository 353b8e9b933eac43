"""A small pipeline of Stable Diffusion's kind learns to draw coloured shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_images import COLOURS, LABELS, SIDE, draw
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, Tick, chunks, fit, quiet, repeatable
from hf_serve.handlers.checkpoints.diffusion import import_diffusers

# The empty word ends a text; words that are not here are spelled in letters.
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,"
WORDS = ("a", *COLOURS, "circle", "square", "triangle")
START, END = "<|startoftext|>", "<|endoftext|>"
TOKENS = 12
LATENT_CHANNELS, LATENT_SIDE = 4, SIDE // 4
# Prompts that are left out, so that guidance knows images without one.
WITHOUT_PROMPT = 0.1
STEPS = 20
AUTOENCODER = Plan(rows=4000, batch=16, rate=4e-3)


class TextToImage(Trainer):
    """A prompt such as `a red circle`, and the image of it."""

    plan = Plan(rows=4000, batch=32, rate=3e-3)
    evaluation_rows = 36

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a pipeline with random weights, and its tokenizer."""
        diffusers, tokenizer = import_diffusers(), _tokenizer()
        end = tokenizer.eos_token_id
        text = CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=TOKENS,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=end,
            pad_token_id=end,
        )
        pipeline = diffusers.StableDiffusionPipeline(
            tokenizer=tokenizer,
            text_encoder=CLIPTextModel(text),
            vae=diffusers.AutoencoderKL(
                block_out_channels=(8, 16, 32),
                down_block_types=("DownEncoderBlock2D",) * 3,
                up_block_types=("UpDecoderBlock2D",) * 3,
                latent_channels=LATENT_CHANNELS,
                norm_num_groups=8,
                sample_size=SIDE,
            ),
            unet=diffusers.UNet2DConditionModel(
                sample_size=LATENT_SIDE,
                block_out_channels=(32, 64),
                layers_per_block=1,
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
                cross_attention_dim=64,
                attention_head_dim=4,
                norm_num_groups=16,
            ),
            scheduler=diffusers.DDIMScheduler(
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                clip_sample=False,
                set_alpha_to_one=False,
                steps_offset=1,
            ),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        pipeline.set_progress_bar_config(disable=True)
        return pipeline, tokenizer

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Draw images with their prompts."""
        rng = Random(f"train {seed}")
        scenes = [draw(rng) for _ in range(rows)]
        prompts = ["" if rng.random() < WITHOUT_PROMPT else f"a {each.label}" for each in scenes]
        known = {prompt: _ids(tokenizer, prompt) for prompt in sorted(set(prompts))}
        return [
            {"pixels": _pixels(each.image), "ids": known[prompt]}
            for each, prompt in zip(scenes, prompts, strict=True)
        ]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of prompts whose image has their colour."""
        prompts = [LABELS[number % len(LABELS)] for number in range(rows)]
        images = [_drawn(model, f"a {each}", seed + number) for number, each in enumerate(prompts)]
        pairs = zip(images, prompts, strict=True)
        return {"colour": mean(_colour(image) == prompt.split()[0] for image, prompt in pairs)}

    def train(
        self, folder: Path, *, seed: int, rows: int, evaluation_rows: int, tick: Tick
    ) -> dict[str, float]:
        """Train the autoencoder, then the other parts on what it encodes."""
        with quiet(), repeatable(seed):
            pipeline, tokenizer = self.start(seed)
            features = self.features(tokenizer, rows, seed)
            first = min(len(features), AUTOENCODER.rows)
            pixels = [{"pixels": each["pixels"]} for each in features[:first]]
            fit(_Autoencoding(pipeline.vae), pixels, AUTOENCODER, seed, lambda done: tick(done / 3))
            latents = _encoded(pipeline.vae, [each["pixels"] for each in features])
            pipeline.vae.register_to_config(scaling_factor=1 / float(latents.std()))
            latents *= pipeline.vae.config.scaling_factor
            pairs = zip(latents, features, strict=True)
            encoded = [{"latents": each, "ids": feature["ids"]} for each, feature in pairs]
            denoising = _Denoising(pipeline)
            fit(denoising, encoded, self.plan, seed, lambda done: tick((1 + 2 * done) / 3))
            measures = self.evaluate(pipeline, tokenizer, evaluation_rows, seed)
            pipeline.save_pretrained(folder)
        for path in (path for path in folder.rglob("*") if path.is_file()):
            path.chmod(0o644)
        return measures


class _Autoencoding(nn.Module):
    """The error of an autoencoder, as `fit` trains it."""

    config = None

    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, pixels: torch.Tensor) -> Any:
        codes = self.vae.encode(pixels).latent_dist
        decoded = self.vae.decode(codes.mean + 0.05 * torch.randn_like(codes.mean)).sample
        return SimpleNamespace(loss=nn.functional.mse_loss(decoded, pixels))


class _Denoising(nn.Module):
    """The error of the noise that a UNet finds, as `fit` trains it with the text encoder."""

    config = None

    def __init__(self, pipeline: Any) -> None:
        super().__init__()
        self.unet, self.text_encoder = pipeline.unet, pipeline.text_encoder
        self.scheduler = pipeline.scheduler

    def forward(self, latents: torch.Tensor, ids: torch.Tensor) -> Any:
        noise = torch.randn_like(latents)
        steps = torch.randint(0, self.scheduler.config.num_train_timesteps, (len(latents),))
        noisy = self.scheduler.add_noise(latents, noise, steps)
        states = self.text_encoder(ids).last_hidden_state
        found = self.unet(noisy, steps, encoder_hidden_states=states).sample
        return SimpleNamespace(loss=nn.functional.mse_loss(found, noise))


def _tokenizer() -> CLIPTokenizer:
    """Return a tokenizer of CLIP's kind for the words of the prompts."""
    words = [*LETTERS, *(f"{each}</w>" for each in LETTERS)]
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        for size in range(2, len(word) + 1):
            end = "</w>" if size == len(word) else ""
            pair = (word[: size - 1], f"{word[size - 1]}{end}")
            if "".join(pair) not in words:
                merges.append(pair)
                words.append("".join(pair))
    vocabulary = {word: number for number, word in enumerate([*words, START, END])}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=TOKENS)


def _ids(tokenizer: Any, prompt: str) -> torch.Tensor:
    ids: torch.Tensor = tokenizer(
        prompt, padding="max_length", max_length=TOKENS, truncation=True, return_tensors="pt"
    ).input_ids[0]
    return ids


def _pixels(image: Any) -> torch.Tensor:
    """Return an image as a VAE reads it, with numbers from -1 to 1. Shape: (3, side, side)."""
    return torch.from_numpy(np.asarray(image, np.float32) / 127.5 - 1).permute(2, 0, 1)


@torch.no_grad()
def _encoded(vae: Any, pixels: Sequence[torch.Tensor]) -> torch.Tensor:
    parts = [vae.encode(torch.stack(list(part))).latent_dist.mean for part in chunks(pixels, 64)]
    return torch.cat(parts)


@torch.no_grad()
def _drawn(pipeline: Any, prompt: str, seed: int) -> np.ndarray[Any, Any]:
    """Return the image of a prompt. Shape: (side, side, 3)."""
    generator = torch.Generator().manual_seed(seed)
    made = pipeline(prompt, num_inference_steps=STEPS, generator=generator, output_type="np")
    image: np.ndarray[Any, Any] = made.images[0] * 255
    return image


def _colour(image: np.ndarray[Any, Any]) -> str:
    """Return the colour that is nearest to the darkest fifth of an image."""
    pixels = image.reshape(-1, 3)
    dark = pixels[np.argsort(pixels.min(axis=1))[: len(pixels) // 5]].mean(axis=0)
    return min(COLOURS, key=lambda name: float(np.abs(dark - COLOURS[name]).sum()))


TRAINER = TextToImage()
