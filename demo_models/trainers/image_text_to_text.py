"""A tiny LLaVA learns to answer questions about a coloured shape in a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.processors import Processors
from hf_serve.demo_models.synthetic_images import COLOURS, SHAPES, SIDE, as_base64, draw
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, chunks

PAD, END, UNKNOWN, IMAGE = "<pad>", "</s>", "<unk>", "<image>"
# What a space is in a token.
SPACE = "\u2581"
PATCH = 16
IMAGE_TOKENS = (SIDE // PATCH) ** 2
QUESTIONS = {
    "What is it?": "A {colour} {shape}.",
    "What colour is it?": "It is {colour}.",
    "Which shape is it?": "It is a {shape}.",
}
ROLES = "user assistant :"
# Of tools it has the names alone, as the model was not trained to call any.
TEMPLATE = (
    "{% if tools %}{{ tools | map(attribute='function.name') | join(' ') }} {% endif %}"
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% if message['role'] == 'assistant' %}</s>{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
POSITIONS = 256
ROWS = 32


class Example(NamedTuple):
    """An image, a question and the sentence that answers it."""

    image: Image.Image
    question: str
    answer: str


@dataclass(frozen=True)
class ChatProcessors(Processors):
    """A tokenizer and an image processor, with the settings of LLaVA's processor."""

    def save_pretrained(self, folder: Path) -> None:
        super().save_pretrained(folder)
        settings = {
            "processor_class": "LlavaProcessor",
            "patch_size": PATCH,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        }
        (folder / "processor_config.json").write_text(json.dumps(settings), encoding="utf-8")


class ImageTextToText(Trainer):
    """One shape in one colour, and three questions about it."""

    plan = Plan(rows=5000, batch=32, rate=2e-3)
    evaluation_rows = 200

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a LLaVA with random weights, its tokenizer and its image processor."""
        tokenizer = _tokenizer()
        ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
        vision = CLIPVisionConfig(**shape, num_hidden_layers=2, image_size=SIDE, patch_size=PATCH)
        text = LlamaConfig(
            **shape,
            **ends,
            num_hidden_layers=2,
            vocab_size=len(tokenizer),
            max_position_embeddings=POSITIONS,
        )
        image_token = tokenizer.convert_tokens_to_ids(IMAGE)
        config = LlavaConfig(
            vision_config=vision,
            text_config=text,
            image_token_id=image_token,
            vision_feature_layer=-1,
            **ends,
        )
        model = LlavaForConditionalGeneration(config)
        model.generation_config = GenerationConfig(**ends)
        sides = {"height": SIDE, "width": SIDE}
        images = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=sides)
        return model, ChatProcessors(tokenizer, images)

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Draw images with chats; the loss is of the answers alone."""
        return [_labelled(tokenizer, each) for each in _examples(rows, f"train {seed}")]

    @torch.inference_mode()
    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of questions that are answered with exactly the right sentence."""
        held_out = _examples(rows, f"held out {seed}")
        written: list[str] = []
        for question in QUESTIONS:
            asked = [each for each in held_out if each.question == question]
            for part in chunks(asked, ROWS):
                written += _written(model, tokenizer, part)
        in_order = (
            each for question in QUESTIONS for each in held_out if each.question == question
        )
        expected = [each.answer for each in in_order]
        pairs = zip(written, expected, strict=True)
        return {"exact match": mean(found == answer for found, answer in pairs)}

    def calibration_bodies(self, rows: int, seed: int) -> list[dict[str, Any]]:
        """Draw images with questions."""
        return [
            {
                "inputs": {"image": as_base64(each.image), "text": each.question},
                "parameters": {"max_new_tokens": 8},
            }
            for each in _examples(rows // 8, f"calibration {seed}")
        ]


def _tokenizer() -> Any:
    """Return a tokenizer of the words of the chats, and of the letters of others."""
    texts = [ROLES, *QUESTIONS, *QUESTIONS.values(), *COLOURS, *SHAPES]
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Punctuation()]
    )
    words = {
        word for text in texts for word, _ in split.pre_tokenize_str(f" {text}") if "{" not in word
    }
    letters = {chr(code) for code in range(33, 127)} | {SPACE}
    known = words | {word.lstrip(SPACE) for word in words} | letters
    entries = [PAD, END, UNKNOWN, IMAGE, *sorted(filter(None, known))]
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    kernel = Tokenizer(
        models.WordPiece(vocabulary, unk_token=UNKNOWN, continuing_subword_prefix="")
    )
    kernel.pre_tokenizer = split
    spaces = decoders.Metaspace(prepend_scheme="never")
    kernel.decoder = decoders.Sequence([spaces, decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=kernel,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=[IMAGE],
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _examples(count: int, seed: str) -> list[Example]:
    rng = Random(seed)
    return [_example(rng) for _ in range(count)]


def _example(rng: Random) -> Example:
    scene = draw(rng)
    colour, shape = scene.label.split()
    question = rng.choice(list(QUESTIONS))
    return Example(scene.image, question, QUESTIONS[question].format(colour=colour, shape=shape))


def _prompt(tokenizer: Any, question: str) -> list[int]:
    return list(tokenizer(f"user: {IMAGE * IMAGE_TOKENS}{question} assistant:")["input_ids"])


def _pixels(processors: Any, image: Image.Image) -> torch.Tensor:
    pixels: torch.Tensor = processors.images(images=image, return_tensors="pt")["pixel_values"][0]
    return pixels


def _labelled(processors: Any, example: Example) -> Feature:
    prompt = _prompt(processors.tokenizer, example.question)
    answer = processors.tokenizer(f" {example.answer}{END}")["input_ids"]
    return {
        "input_ids": prompt + answer,
        "attention_mask": [1] * len(prompt + answer),
        "labels": [-100] * len(prompt) + answer,
        "pixel_values": _pixels(processors, example.image),
    }


def _written(model: Any, processors: Any, examples: Any) -> list[str]:
    """Return what is generated for examples with the same question."""
    prompt = torch.tensor([_prompt(processors.tokenizer, examples[0].question)] * len(examples))
    pixels = torch.stack([_pixels(processors, each.image) for each in examples])
    ids = model.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        pixel_values=pixels,
        max_new_tokens=12,
        do_sample=False,
    )
    texts = processors.tokenizer.batch_decode(ids[:, prompt.shape[1] :], skip_special_tokens=True)
    return [text.strip() for text in texts]


TRAINER = ImageTextToText()
