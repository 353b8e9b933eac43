"""Sounds of several lengths, and tiny checkpoints of models that read audio, for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch
import transformers
from transformers import (
    AddedToken,
    ASTFeatureExtractor,
    AutoTokenizer,
    GenerationConfig,
    MoonshineConfig,
    MoonshineForConditionalGeneration,
    SequenceFeatureExtractor,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    WhisperFeatureExtractor,
    WhisperTokenizer,
)

from tests.catalogue.sizes import WAVES
from tests.tiny_tokenizers import write_llama

RATE = 16_000
SECONDS = (0.4, 0.65, 0.4, 1.1)

Samples = npt.NDArray[np.float32]


def sound_of(seed: int, seconds: float = 0.4, rate: int = RATE) -> Samples:
    """Return tones that change a few times a second, and noise."""
    rng = np.random.default_rng(seed)
    times = np.arange(round(seconds * rate)) / rate
    steps = rng.uniform(150, 3_000, size=1 + int(seconds * 8))
    waves = np.sin(2 * np.pi * steps[(times * 8).astype(int)] * times)
    return (0.4 * waves + 0.02 * rng.standard_normal(len(times))).astype(np.float32)


def file_of(samples: Any, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Return the bytes of an audio file. Shape of several channels: (frames, channels)."""
    stream = BytesIO()
    subtype = subtype or ("FLOAT" if kind == "WAV" else None)
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()


def encoded(file: bytes) -> str:
    """Return a file in base64."""
    return base64.b64encode(file).decode()


def sound_for(text: Any) -> str:
    """Return a file in base64 that depends on a text."""
    return encoded(file_of(sound_of(sum(map(ord, str(text))))))


SOUNDS = [sound_of(number, seconds) for number, seconds in enumerate(SECONDS)]
FILES = [file_of(each) for each in SOUNDS]
TEXTS = [encoded(each) for each in FILES]
BROKEN = FILES[0][:5_000]

CONVOLUTIONS: Mapping[str, Any] = {
    **WAVES,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
}
PATCHES: Mapping[str, Any] = {
    "num_mel_bins": 32,
    "max_length": 48,
    "patch_size": 16,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def waves(**settings: Any) -> SequenceFeatureExtractor:
    """Return a feature extractor of waveforms."""
    extractor: SequenceFeatureExtractor = Wav2Vec2FeatureExtractor(**settings)
    return extractor


WHISPER: Mapping[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32,
    "num_mel_bins": 20,
    "max_source_positions": 100,
    "max_target_positions": 64,
}
LETTERS = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGH")
WORDS = (*"abcdefgh", *(f"Ġ{letter}" for letter in "abcdefgh"))
SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startofprev|>",
    "<|notimestamps|>",
)
TIMES = tuple(f"<|{number * 0.02:.2f}|>" for number in range(101))

# The mode of each model, the values of its config, and its feature extractor.
FAMILIES: dict[str, tuple[str, Mapping[str, Any], SequenceFeatureExtractor]] = {
    "Wav2Vec2ForSequenceClassification": ("audio_classification", CONVOLUTIONS, waves()),
    "HubertForSequenceClassification": (
        "audio_classification",
        {**CONVOLUTIONS, "feat_extract_norm": "layer"},
        waves(return_attention_mask=True),
    ),
    "ASTForAudioClassification": (
        "audio_classification",
        PATCHES,
        ASTFeatureExtractor(num_mel_bins=32, max_length=48),
    ),
    "WhisperForAudioClassification": (
        "audio_classification",
        WHISPER,
        WhisperFeatureExtractor(feature_size=20, chunk_length=2),
    ),
    "Wav2Vec2ForCTC": ("automatic_speech_recognition", CONVOLUTIONS, waves()),
    "HubertForCTC": (
        "automatic_speech_recognition",
        {**CONVOLUTIONS, "feat_extract_norm": "layer"},
        waves(return_attention_mask=True),
    ),
    "WhisperForConditionalGeneration": (
        "automatic_speech_recognition",
        WHISPER,
        WhisperFeatureExtractor(feature_size=20, chunk_length=2),
    ),
}


MOONSHINE: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    **{f"{part}_num_hidden_layers": 1 for part in ("encoder", "decoder")},
    **{f"{part}_num_attention_heads": 2 for part in ("encoder", "decoder")},
}


def write_moonshine(folder: Path) -> Path:
    """Write a Moonshine, whose texts have up to 63 tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    end = write_llama(folder)
    size = len(AutoTokenizer.from_pretrained(folder))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MoonshineForConditionalGeneration(
            MoonshineConfig(**MOONSHINE, vocab_size=size, eos_token_id=end, pad_token_id=end)
        )
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    waves(return_attention_mask=True, do_normalize=False).save_pretrained(folder)
    return folder


def mode_of(family: str) -> str:
    """Return the mode that serves a model."""
    return FAMILIES[family][0]


def write(
    folder: Path, family: str, config: Mapping[str, Any] | None = None, seed: int = 0
) -> Path:
    """Write a checkpoint of a model, with the same weights each time."""
    folder.mkdir(parents=True, exist_ok=True)
    _, values, extractor = FAMILIES[family]
    kind = getattr(transformers, family)
    names: dict[str, Any] = {}
    if "Classification" in family:
        names["id2label"] = dict(enumerate(LABELS))
    elif "CTC" in family:
        names["vocab_size"] = write_letters(folder)
    elif "Conditional" in family:
        names |= write_words(folder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(kind.config_class(**{**values, **names, **(config or {})}))
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
    if "Conditional" in family:
        # Logits that depend on the audio, and texts that end.
        model.generation_config = GenerationConfig(**generation_of(names))
    model.save_pretrained(folder)
    extractor.save_pretrained(folder)
    return folder


def write_letters(folder: Path) -> int:
    """Write a tokenizer of letters for CTC, and return the number of its tokens."""
    (folder / "vocab.json").write_text(json.dumps({each: at for at, each in enumerate(LETTERS)}))
    Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    return len(LETTERS)


def write_words(folder: Path) -> dict[str, Any]:
    """Write a tokenizer of Whisper, and return the config's values for it."""
    tokenizer = WhisperTokenizer(vocab={each: at for at, each in enumerate(WORDS)}, merges=[])
    tokenizer.add_special_tokens({"extra_special_tokens": list(SPECIAL)})
    tokenizer.add_tokens([AddedToken(each, special=False) for each in TIMES])
    tokenizer.save_pretrained(folder)
    ids = dict(zip(SPECIAL, tokenizer.convert_tokens_to_ids(list(SPECIAL)), strict=True))
    end = ids["<|endoftext|>"]
    return {
        "vocab_size": len(tokenizer),
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), end),
    }


def generation_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of Whisper's generation config."""
    first = config["eos_token_id"]
    ids = {name: first + at for at, name in enumerate(SPECIAL)}
    numbers = {name: value for name, value in config.items() if name != "vocab_size"}
    return {
        **numbers,
        "max_length": 64,
        "is_multilingual": True,
        "lang_to_id": {name: ids[name] for name in ("<|en|>", "<|de|>")},
        "task_to_id": {name: ids[f"<|{name}|>"] for name in ("translate", "transcribe")},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "alignment_heads": [[0, 0], [1, 1]],
        "suppress_tokens": [],
        "begin_suppress_tokens": [first],
        "max_initial_timestamp_index": 50,
    }


LABELS = ("bell", "horn", "siren")
