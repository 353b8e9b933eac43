"""The tokenizers of the tiny checkpoints of the catalogue, by the kinds that entries name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from tests import sounds, tiny_diffusion, tiny_gliner, tiny_tokenizers, tiny_vits

# Tokens of a model of pages, special ones included.
PAGE_TOKENS = 432
DONUT = ("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")
# The tokens that processors ask their tokenizer for.
NAMED_TOKENS: Mapping[str, Mapping[str, str]] = {
    "gemma-vision": {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    },
    "internvl": {
        "context_image_token": "<IMG_CONTEXT>",
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "video_token": "<video>",
    },
}


def write(kind: str, folder: Path) -> dict[str, Any]:
    """Write a tokenizer of a kind; returns the values of a config that depend on it."""
    if kind in WRITERS:
        return WRITERS[kind](folder)
    found = getattr(tiny_tokenizers, f"write_{kind.replace('-', '_')}")(folder)
    return {"vocab_size": 0, **found}


def _gpt2(folder: Path) -> dict[str, Any]:
    end = tiny_tokenizers.write_gpt2(folder)
    ids = ("eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id")
    return {**dict.fromkeys(ids, end), "vocab_size": 400}


def _llama(folder: Path) -> dict[str, Any]:
    end = tiny_tokenizers.write_llama(folder)
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    return {"bos_token_id": 1, "eos_token_id": end, "vocab_size": size}


def _roberta(folder: Path) -> dict[str, Any]:
    found = tiny_tokenizers.write_roberta(folder)
    ids = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 2}
    return {**ids, "vocab_size": found["vocab_size"]}


def _donut(folder: Path) -> dict[str, Any]:
    values = _roberta(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(DONUT)})
    tokenizer.save_pretrained(folder)
    start = tokenizer.convert_tokens_to_ids(DONUT[0])
    return {**values, "vocab_size": len(tokenizer), "decoder_start_token_id": start}


def _siglip(folder: Path) -> dict[str, Any]:
    tiny_tokenizers.write_siglip(folder)
    return {"vocab_size": 400}


def _siglip2(folder: Path) -> dict[str, Any]:
    # The published parts name no tokens.
    return {"vocab_size": tiny_tokenizers.write_siglip2(folder)["vocab_size"]}


def _clip(folder: Path) -> dict[str, Any]:
    tokenizer = tiny_diffusion.write_tokenizer(folder)
    tokenizer.save_pretrained(folder)
    return {"vocab_size": len(tokenizer)}


def _vits(folder: Path) -> dict[str, Any]:
    return {"vocab_size": len(tiny_vits.write_tokenizer(folder))}


def _letters(folder: Path) -> dict[str, Any]:
    return {"vocab_size": sounds.write_letters(folder)}


def _whisper(folder: Path) -> dict[str, Any]:
    values = sounds.write_words(folder)
    text = json.dumps(sounds.generation_of(values))
    (folder / "generation_config.json").write_text(text, encoding="utf-8")
    return values


def _gliner(folder: Path) -> dict[str, Any]:
    """Write DeBERTa's tokenizer with the tokens that mark labels and the text."""
    values = tiny_tokenizers.write_deberta_v2(folder)
    size = _add_tokens(folder, tiny_gliner.TOKENS)
    return {**values, "vocab_size": size, "class_token_index": size - 2}


def _gliner2(folder: Path) -> dict[str, Any]:
    """Write DeBERTa's tokenizer with the tokens of a schema."""
    values = tiny_tokenizers.write_deberta_v2(folder)
    return {**values, "vocab_size": _add_tokens(folder, tiny_gliner.GLINER2_TOKENS)}


def _gliclass(kind: str, folder: Path) -> dict[str, Any]:
    """Write the tokenizer of an encoder with the tokens that mark labels and their end."""
    values = write(kind, folder)
    size = _add_tokens(folder, tiny_gliner.GLICLASS_TOKENS)
    own = {"class_token_index": size - 3, "text_token_index": size - 2}
    return {**values, "vocab_size": size, **own}


def _add_tokens(folder: Path, tokens: Sequence[str]) -> int:
    """Add tokens to a tokenizer; returns how many it has."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(tokens), special_tokens=True)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def _pages(kind: str, folder: Path) -> dict[str, Any]:
    """Write the tokenizer of a model of texts and images."""
    # Versions of transformers that some of the libraries need do not have these models.
    tiny: Any = import_module("tests.tiny_multimodal")
    split = dict.fromkeys(tiny.SPLIT_TOKENS, "") | {"<image>": "image_token_id"}
    tokens = {
        "colmodernvbert": split,
        "colpali": {"<image>": "image_token_index"},
        "colqwen2": tiny.QWEN_TOKENS,
        "gemma-vision": {
            "<start_of_image>": "boi_token_index",
            "<end_of_image>": "eoi_token_index",
            "<image_soft_token>": "image_token_index",
        },
        "internvl": {"<IMG_CONTEXT>": "image_token_id", "<img>": "", "</img>": "", "<video>": ""},
        "llava": {"<image>": "image_token_index"},
        "qwen2-vl": tiny.QWEN_TOKENS,
        "smolvlm": split,
    }[kind]
    ids = tiny.write_page_tokens(folder, list(tokens))
    _name_tokens(folder, NAMED_TOKENS.get(kind, {}))
    end = ids["<|endoftext|>"]
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    return {**ends, "vocab_size": PAGE_TOKENS, **{key: ids[name] for name, key in tokens.items()}}


def _name_tokens(folder: Path, names: Mapping[str, str]) -> None:
    """Give tokens the names by which a processor asks a tokenizer for them."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    named = {"extra_special_tokens": dict(names)} if names else {}
    path.write_text(json.dumps({**settings, **named}), encoding="utf-8")


WRITERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "clip": _clip,
    **{
        kind: partial(_pages, kind)
        for kind in (
            *("colmodernvbert", "colpali", "colqwen2", "gemma-vision", "internvl", "llava"),
            *("qwen2-vl", "smolvlm"),
        )
    },
    "donut": _donut,
    "gliclass": partial(_gliclass, "deberta-v2"),
    "gliclass-modernbert": partial(_gliclass, "modernbert"),
    "gliner": _gliner,
    "gliner2": _gliner2,
    "gpt2": _gpt2,
    "letters": _letters,
    "llama": _llama,
    "roberta": _roberta,
    "siglip": _siglip,
    "siglip2": _siglip2,
    "vits": _vits,
    "whisper": _whisper,
}
