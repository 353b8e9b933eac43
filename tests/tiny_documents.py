"""Tiny checkpoints of models that answer questions about pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import (
    AutoTokenizer,
    DonutImageProcessorPil,
    DonutSwinConfig,
    GenerationConfig,
    LayoutLMConfig,
    LayoutLMForQuestionAnswering,
    LayoutLMv3Config,
    LayoutLMv3ForQuestionAnswering,
    LayoutLMv3ImageProcessorPil,
    LayoutLMv3Tokenizer,
    MBartConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

from tests.tiny_multimodal import SIZES, save_model
from tests.tiny_tokenizers import POSITIONS, write_bert, write_roberta

DONUT_TOKENS = ("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")


def page_of(text: str) -> list[Any]:
    """Return the words of a text with the boxes of lines of eight words."""
    places = ((word, *divmod(number, 8)) for number, word in enumerate(text.split()))
    return [
        [word, [120 * column, 15 * line % 980, 120 * column + 100, 15 * line % 980 + 12]]
        for word, line, column in places
    ]


def write_layoutlm(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a LayoutLM, which reads words with boxes."""
    tokens = {**write_bert(folder), "max_position_embeddings": POSITIONS}
    config = LayoutLMConfig(**{**SIZES, **tokens, **values})
    save_model(folder, LayoutLMForQuestionAnswering, config, seed)


def write_layoutlmv3(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a LayoutLMv3, which reads words with boxes and images of 32 x 32 pixels."""
    tokens = write_roberta(folder)
    LayoutLMv3Tokenizer.from_pretrained(folder).save_pretrained(folder)
    LayoutLMv3ImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    shapes = {"input_size": 32, "patch_size": 8, "coordinate_size": 5, "shape_size": 6}
    sizes = {**SIZES, **shapes, "type_vocab_size": 1, "max_position_embeddings": POSITIONS + 2}
    config = LayoutLMv3Config(**{**sizes, **tokens, **values})
    save_model(folder, LayoutLMv3ForQuestionAnswering, config, seed)


def write_donut(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a Donut, which reads images of 32 x 32 pixels and generates."""
    write_roberta(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(DONUT_TOKENS)})
    tokenizer.save_pretrained(folder)
    DonutImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    encoder = DonutSwinConfig(
        image_size=[32, 32],
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=2,
    )
    decoder = MBartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=64,
        max_position_embeddings=POSITIONS,
        is_decoder=True,
        add_cross_attention=True,
        scale_embedding=True,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, **values)
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
    for name, number in ids.items():
        setattr(config, name, number)
    save_model(folder, VisionEncoderDecoderModel, config, seed)
    GenerationConfig(**ids, bos_token_id=0, max_new_tokens=12).save_pretrained(folder)
