"""What transformers' speech recognition pipeline calls of the tokenizers of Whisper and CTC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE

__all__ = ["LANGUAGES", "TO_LANGUAGE_CODE", "join_chunks", "word_offsets"]


def join_chunks(
    tokenizer: Any,
    chunks: Sequence[dict[str, Any]],
    *,
    return_timestamps: bool | str | None,
    return_language: bool,
    time_precision: float,
) -> tuple[str, dict[str, Any]]:
    """Return the text of the chunks of an audio file, and its parts with their times.

    Breaks when the pipeline joins chunks by another method of Whisper's tokenizer than
    `_decode_asr`.
    """
    return tokenizer._decode_asr(
        list(chunks),
        return_timestamps=return_timestamps,
        return_language=return_language,
        time_precision=time_precision,
    )


def word_offsets(tokenizer: Any, letters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the places of words, from those of the letters of a CTC tokenizer.

    Breaks when `Wav2Vec2CTCTokenizer` has no `_get_word_offsets`.
    """
    return tokenizer._get_word_offsets(letters, tokenizer.replace_word_delimiter_char)
