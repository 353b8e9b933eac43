from __future__ import annotations

import json
from pathlib import Path

from transformers import Wav2Vec2CTCTokenizer, WhisperTokenizer

from handlers.compat.transformers.speech import (
    LANGUAGES,
    TO_LANGUAGE_CODE,
    join_chunks,
    word_offsets,
)


def test_whisper_has_names_of_its_languages() -> None:
    assert LANGUAGES["de"] == "german" and TO_LANGUAGE_CODE["german"] == "de"


def test_the_join_is_a_method_of_whispers_tokenizer() -> None:
    assert callable(WhisperTokenizer._decode_asr)


def test_chunks_without_tokens_have_no_text() -> None:
    tokenizer = WhisperTokenizer.__new__(WhisperTokenizer)

    def decode(model_outputs: list[dict[str, object]], **options: object) -> tuple[str, object]:
        return "joined", {"outputs": model_outputs, **options}

    tokenizer.__dict__["_decode_asr"] = decode
    options = {"return_timestamps": "word", "return_language": True, "time_precision": 0.02}
    text, parts = join_chunks(tokenizer, [{"tokens": 1}], **options)  # type: ignore[arg-type]
    assert (text, parts) == ("joined", {"outputs": [{"tokens": 1}], **options})


def test_letters_are_joined_to_words(tmp_path: Path) -> None:
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", "a", "b"]
    file = tmp_path / "vocab.json"
    file.write_text(json.dumps({each: n for n, each in enumerate(letters)}), encoding="utf-8")
    tokenizer = Wav2Vec2CTCTokenizer(str(file))
    found = tokenizer.decode([5, 5, 0, 6, 4, 5], output_char_offsets=True)
    words = word_offsets(tokenizer, found["char_offsets"])
    assert words == [
        {"word": "ab", "start_offset": 0, "end_offset": 4},
        {"word": "a", "start_offset": 5, "end_offset": 6},
    ]
