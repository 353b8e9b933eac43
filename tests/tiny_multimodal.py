"""Tiny checkpoints of models that read images and texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoTokenizer,
    BlipConfig,
    BlipForQuestionAnswering,
    BlipImageProcessorPil,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    ColModernVBertConfig,
    ColModernVBertForRetrieval,
    ColPaliConfig,
    ColPaliForRetrieval,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    ModernVBertConfig,
    Owlv2Config,
    Owlv2ForObjectDetection,
    PaliGemmaConfig,
    PreTrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    SwinConfig,
    ViltConfig,
    ViltForQuestionAnswering,
    ViltImageProcessorPil,
)
from transformers.models.grounding_dino.image_processing_pil_grounding_dino import (
    GroundingDinoImageProcessorPil,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.owlv2.image_processing_pil_owlv2 import Owlv2ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from tests.tiny_tokenizers import write_bert, write_gpt2

LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2}
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, **LAYERS}
# The tokens of a split image, and the sizes at which it is split.
SPLIT_TOKENS = [
    *("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"),
    *(f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4)),
]
SPLIT_SIZES: dict[str, Any] = {
    "size": {"longest_edge": 64},
    "max_image_size": {"longest_edge": 32},
}
# The tokens around images of Qwen2-VL, and the keys of their numbers in its config.
QWEN_TOKENS = {
    "<|vision_start|>": "vision_start_token_id",
    "<|vision_end|>": "vision_end_token_id",
    "<|image_pad|>": "image_token_id",
    "<|video_pad|>": "video_token_id",
}
ANSWERS = ("yes", "no", "a square", "a circle", "red", "blue", "two")


def write_vilt(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a model that chooses among seven answers, for images of about 32 pixels a side."""
    tokens = write_bert(folder)
    ViltImageProcessorPil(size={"shortest_edge": 32}, size_divisor=8).save_pretrained(folder)
    sizes = {**SIZES, "image_size": 32, "patch_size": 8, "max_position_embeddings": 40}
    names = {"id2label": dict(enumerate(ANSWERS))}
    config = ViltConfig(**{**sizes, **tokens, **names, **values})
    save_model(folder, ViltForQuestionAnswering, config, seed)


def write_blip(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a model that generates its answers, for images of 32 x 32 pixels."""
    tokens = write_bert(folder)
    BlipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    ends = {"bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "is_decoder": True}
    text = {**SIZES, **tokens, **ends, "encoder_hidden_size": 32, "max_position_embeddings": 64}
    vision = {**SIZES, "image_size": 32, "patch_size": 8}
    config = BlipConfig(text_config=text, vision_config=vision, projection_dim=32, **values)
    save_model(folder, BlipForQuestionAnswering, config, seed)


def save_model(folder: Path, kind: Any, config: PreTrainedConfig, seed: int) -> None:
    """Write a model with weights by which different inputs have different outputs."""
    torch.manual_seed(seed)
    model = kind(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.uniform_(-0.8, 0.8)
    model.save_pretrained(folder)


def write_llava(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a LLaVA, whose images of 32 x 32 pixels have four tokens each."""
    ids = _write_chat_tokens(folder, ["<image>"])
    vision = CLIPVisionConfig(**SIZES, image_size=32, patch_size=16)
    config = LlavaConfig(
        vision_config=vision,
        text_config=LlamaConfig(**_decoder(ids)),
        image_token_id=ids["<image>"],
        vision_feature_layer=-1,
        **values,
    )
    save_model(folder, LlavaForConditionalGeneration, config, seed)
    size = {"height": 32, "width": 32}
    images = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=size)
    settings = {
        "patch_size": 16,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    _save_processor(folder, images, "LlavaProcessor", settings)


def write_qwen2_vl(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a Qwen2-VL, whose images have as many tokens as their size needs."""
    save_model(folder, Qwen2VLForConditionalGeneration, _qwen2_vl(folder, values), seed)
    images = Qwen2VLImageProcessorPil(min_pixels=256, max_pixels=4096, patch_size=8)
    _save_processor(folder, images, "Qwen2VLProcessor", {})


def _qwen2_vl(folder: Path, values: Mapping[str, Any]) -> Qwen2VLConfig:
    """Write the tokenizer of a Qwen2-VL, and return its config."""
    text, tokens = _qwen_text(folder)
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 8}
    return Qwen2VLConfig(text_config=text, vision_config=vision, **tokens, **values)


def write_qwen2_5_vl(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write a Qwen2.5-VL, which reads the images of Qwen2-VL in windows of patches."""
    text, tokens = _qwen_text(folder)
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
    windows = {"patch_size": 8, "window_size": 32, "fullatt_block_indexes": [1]}
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config={**vision, **windows, "out_hidden_size": 32},
        **tokens,
        **values,
    )
    save_model(folder, Qwen2_5_VLForConditionalGeneration, config, seed)
    images = Qwen2VLImageProcessorPil(min_pixels=256, max_pixels=4096, patch_size=8)
    _save_processor(folder, images, "Qwen2_5_VLProcessor", {})


def _qwen_text(folder: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Write a tokenizer; returns the config of the texts, and the numbers of tokens."""
    ids = _write_chat_tokens(folder, list(QWEN_TOKENS))
    heads = SIZES["num_attention_heads"]
    # The parts of half a head that tell the time, the row and the column of a token.
    eighth = SIZES["hidden_size"] // heads // 16
    rope = {
        "rope_type": "default",
        "mrope_section": [2 * eighth, 3 * eighth, 3 * eighth],
        "rope_theta": 10_000.0,
    }
    text = {**_decoder(ids), "num_key_value_heads": heads, "rope_parameters": rope}
    return text, {key: ids[name] for name, key in QWEN_TOKENS.items()}


def write_idefics3(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write an Idefics3, the architecture of SmolVLM, which splits large images."""
    ids = _write_chat_tokens(folder, SPLIT_TOKENS)
    vision = {**SIZES, "image_size": 32, "patch_size": 8}
    config = Idefics3Config(
        vision_config=vision,
        text_config=LlamaConfig(**_decoder(ids)),
        image_token_id=ids["<image>"],
        scale_factor=2,
        pad_token_id=ids["<|endoftext|>"],
        **values,
    )
    save_model(folder, Idefics3ForConditionalGeneration, config, seed)
    images = Idefics3ImageProcessorPil(**SPLIT_SIZES)
    _save_processor(folder, images, "Idefics3Processor", {"image_seq_len": 4})


def write_owlv2(folder: Path, values: Mapping[str, Any], seed: int) -> None:
    """Write an OWLv2, for images of 32 x 32 pixels with 16 patches."""
    tokens = write_bert(folder)
    Owlv2ImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    text = {**SIZES, **tokens, "max_position_embeddings": 128}
    vision = {**SIZES, "image_size": 32, "patch_size": 8}
    config = Owlv2Config(text_config=text, vision_config=vision, projection_dim=32, **values)
    save_model(folder, Owlv2ForObjectDetection, config, seed)


# The tokens by which GroundingDINO separates labels, which have fixed numbers in its code.
SEPARATORS = {"[PAD]": 0, "[CLS]": 101, "[SEP]": 102, ".": 1012, "?": 1029}


def write_grounding_dino(folder: Path, family: str = "GroundingDino") -> Path:
    """Write a GroundingDINO, for images of about 64 pixels a side and texts of 40 tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    text = {**SIZES, **write_bert(folder), "vocab_size": _number_separators(folder)}
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "window_size": 4}
    parts = {"depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "out_indices": [2, 3, 4]}
    config = getattr(transformers, f"{family}Config")(
        backbone_config=SwinConfig(**sizes, **parts),
        text_config={**text, "max_position_embeddings": 64},
        d_model=32,
        num_queries=6,
        max_text_len=40,
        **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
        **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
        **{f"{part}_ffn_dim": 32 for part in ("encoder", "decoder")},
    )
    size = {"shortest_edge": 64, "longest_edge": 128}
    GroundingDinoImageProcessorPil(size=size).save_pretrained(folder)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForObjectDetection")(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    return folder


def _number_separators(folder: Path) -> int:
    """Give the tokens that separate labels their numbers; returns the size of the vocabulary."""
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    others = count(max(SEPARATORS.values()) + 1)
    words = {
        word: SEPARATORS[word] if word in SEPARATORS else next(others)
        for word in document["model"]["vocab"]
    }
    document["model"]["vocab"] = words
    for token in document["added_tokens"]:
        token["id"] = words[token["content"]]
    for token in document["post_processor"]["special_tokens"].values():
        token["ids"] = [words[name] for name in token["tokens"]]
    path.write_text(json.dumps(document), encoding="utf-8")
    return next(others)


def write_page_tokens(folder: Path, names: list[str]) -> dict[str, int]:
    """Write the tokenizer of a model of pages, with special tokens; returns their numbers."""
    ids = _write_chat_tokens(folder, names)
    _pad_with_end(folder)
    return ids


def write_colpali(folder: Path) -> None:
    """Write a ColPali, whose pages of 32 x 32 pixels have four patches each."""
    ids = write_page_tokens(folder, ["<image>"])
    vision = {**SIZES, "model_type": "siglip_vision_model", "image_size": 32, "patch_size": 16}
    text = {**_decoder(ids), "model_type": "gemma", "num_key_value_heads": 1, "head_dim": 16}
    vlm = PaliGemmaConfig(
        vision_config={**vision, "vision_use_head": False},
        text_config=text,
        image_token_id=ids["<image>"],
        projection_dim=32,
        hidden_size=32,
    )
    save_model(folder, ColPaliForRetrieval, ColPaliConfig(vlm_config=vlm, embedding_dim=16), 0)
    images = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 4
    _save_processor(folder, images, "ColPaliProcessor", {})


def write_colqwen2(folder: Path) -> None:
    """Write a ColQwen2, whose pages have as many patches as their size needs."""
    vlm = _qwen2_vl(folder, {})
    _pad_with_end(folder)
    save_model(folder, ColQwen2ForRetrieval, ColQwen2Config(vlm_config=vlm, embedding_dim=16), 0)
    images = Qwen2VLImageProcessorPil(min_pixels=256, max_pixels=4096, patch_size=8)
    _save_processor(folder, images, "ColQwen2Processor", {})


def write_colmodernvbert(folder: Path) -> None:
    """Write a ColModernVBERT, which splits large pages."""
    ids = write_page_tokens(folder, SPLIT_TOKENS)
    text = {**_decoder(ids), "model_type": "modernbert"}
    vision = {**SIZES, "model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8}
    vlm = ModernVBertConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<image>"],
        pixel_shuffle_factor=2,
    )
    config = ColModernVBertConfig(vlm_config=vlm, embedding_dim=16)
    save_model(folder, ColModernVBertForRetrieval, config, 0)
    images = Idefics3ImageProcessorPil(**SPLIT_SIZES)
    _save_processor(folder, images, "ColModernVBertProcessor", {"image_seq_len": 4})


def _pad_with_end(folder: Path) -> None:
    """Give a tokenizer its end token as the padding, which fills up queries."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)


# The contents of messages are lists of parts.
PARTS_TEMPLATE = (
    "{% if tools %}{{ tools | map(attribute='function.name') | join(' ') }}\n{% endif %}"
    "{% for message in messages %}{{ message['role'] }}:"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


def _write_chat_tokens(folder: Path, names: list[str]) -> dict[str, int]:
    """Write a tokenizer with special tokens; returns the number of each, and of the last token."""
    write_gpt2(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    images = {
        "<image>": "<image>",
        "<|image_pad|>": "<|vision_start|><|image_pad|><|vision_end|>",
        "<start_of_image>": "<start_of_image>",
        "<IMG_CONTEXT>": "<IMG_CONTEXT>",
    }
    shown = next(images[name] for name in names if name in images)
    tokenizer.chat_template = PARTS_TEMPLATE.replace("IMAGE", shown)
    tokenizer.save_pretrained(folder)
    return {name: int(tokenizer.convert_tokens_to_ids(name)) for name in [*names, "<|endoftext|>"]}


def _decoder(ids: Mapping[str, int]) -> dict[str, Any]:
    end = ids["<|endoftext|>"]
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    return {**SIZES, **ends, "vocab_size": 432, "max_position_embeddings": 256}


def _save_processor(folder: Path, images: Any, kind: str, settings: Mapping[str, Any]) -> None:
    images.save_pretrained(folder)
    document = json.dumps({"processor_class": kind, **settings})
    (folder / "processor_config.json").write_text(document, encoding="utf-8")
