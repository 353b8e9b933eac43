"""Audio files of requests: what is read, and what is refused before or while it is decoded."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import soundfile

from hf_serve.handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from hf_serve.handlers.media.audio import (
    AUDIO_TYPES,
    convert_wav,
    read_audio,
    wav_in_base64,
    wav_to_pcm,
)
from tests.sentences import refused
from tests.sounds import file_of, sound_of

RATE = 16_000
SOUND = sound_of(1, 1.0)


def read(file: bytes, seconds: float = 5.0) -> Any:
    return read_audio(file, "inputs", RATE, seconds)


def wav(
    data: bytes, rate: int = RATE, channels: int = 1, bits: int = 16, kind: int = 1, size: int = -1
) -> bytes:
    """Return a WAV file with the header that is given."""
    frame = min(channels * bits // 8, 65_535)
    head = struct.pack("<HHIIHH", kind, channels, rate, min(rate * frame, 2**32 - 1), frame, bits)
    length = len(data) if size < 0 else size
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", length) + data
    return b"RIFF" + struct.pack("<I", min(len(chunks) - len(data) + length, 2**32 - 1)) + chunks


def without_length(flac: bytes) -> bytes:
    """Return a FLAC file whose header does not tell how many samples it has."""
    return flac[:21] + bytes([flac[21] & 0xF0]) + bytes(4) + flac[26:]


@pytest.mark.parametrize(
    ("kind", "subtype", "close"),
    [
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "FLOAT", 0),
        ("WAV", "ULAW", 0.05),
        ("FLAC", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.5),
        ("OGG", "OPUS", 0.5),
        ("MP3", None, 0.5),
    ],
)
def test_each_format_is_read(kind: str, subtype: str | None, close: float) -> None:
    found = read(file_of(SOUND, kind=kind, subtype=subtype))
    assert found.dtype == np.float32
    assert abs(len(found) - len(SOUND)) <= 2_000  # frames of MP3 are whole
    if close < 0.1:
        assert np.abs(found - SOUND).max() <= close


def test_channels_are_mixed() -> None:
    channels = np.stack([SOUND, -SOUND, 0.5 * SOUND], axis=1)
    assert np.abs(read(file_of(channels)) - SOUND / 6).max() < 1e-6


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_another_sampling_rate_is_resampled(rate: int) -> None:
    times = np.arange(rate) / rate
    expected = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    found = read(file_of(np.sin(2 * np.pi * 440 * times), rate=rate))
    assert len(found) == RATE
    assert np.abs(found - expected)[200:-200].max() < 1e-3


def test_a_stream_without_its_length_is_read() -> None:
    data = (SOUND * 32_767).astype("<i2").tobytes()
    assert np.abs(read(wav(data, size=2**32 - 1)) - SOUND).max() < 1e-3
    assert len(read(without_length(file_of(SOUND, kind="FLAC")))) == len(SOUND)


LONGER = sound_of(1, 4.0)
MP3 = file_of(LONGER, kind="MP3")
# Without the frame that has the length, which encoders leave out where they write to a stream.
MP3_STREAM = MP3.replace(b"Xing", bytes(4))


def test_an_mp3_file_without_its_length_is_read_to_its_end() -> None:
    samples, rate = soundfile.read(BytesIO(MP3_STREAM))
    assert len(samples) / rate < 3  # what libsndfile guesses
    # The encoder's padding is there, too, which the frame with the length tells to leave out.
    assert len(LONGER) <= len(read(MP3_STREAM)) <= len(LONGER) + 3 * 1_152
    assert len(read(MP3)) == len(LONGER)


@pytest.mark.parametrize("file", [MP3, MP3_STREAM])
def test_tags_of_an_mp3_file_are_no_audio(file: bytes) -> None:
    cover = b"APIC" + (100_000).to_bytes(4, "big") + bytes(100_002)
    size = bytes(len(cover) >> bits & 127 for bits in (21, 14, 7, 0))
    tagged = b"ID3\x03\0\0" + size + cover + file
    for tags in (b"", b"TAG" + bytes(125), b"APETAGEX" + bytes(5_000)):
        assert np.abs(len(read(tagged + tags)) - len(read(file))) <= 4 * 1_152


HOURS = file_of(np.zeros(RATE * 3_600, np.int16), kind="FLAC")
NOT_FINITE = [np.float32(each) for each in ("nan", "inf", "-inf", "1e30")]


@pytest.mark.parametrize(
    ("file", "error", "facts"),
    [
        (HOURS, RequestTooLarge, [5]),
        (without_length(HOURS), RequestTooLarge, [5]),
        (file_of(sound_of(1, 5.1)), RequestTooLarge, [5]),
        (
            file_of(np.zeros((4 * 96_000, 8), np.float32), rate=96_000, subtype="PCM_U8"),
            RequestTooLarge,
            [3_072_000, 8],
        ),
        (wav(bytes(64_000), channels=64), Unprocessable, [64, 8]),
        (wav(bytes(3_200), rate=2**31 - 1), Unprocessable, ["2,147,483,647 Hz"]),
        (wav(bytes(3_200), rate=10), Unprocessable, ["10 Hz"]),
        (wav(b""), BadRequest, ["samples"]),
        *(
            (wav(struct.pack("<4f", 0, 0.1, value, 0), bits=32, kind=3), BadRequest, [])
            for value in NOT_FINITE
        ),
    ],
)
def test_a_file_is_refused_with_what_it_has(
    file: bytes, error: type[RequestError], facts: list[object]
) -> None:
    with refused(error, *facts):
        read(file)


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"RIFF",
        b"a text",
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"\xff\xfb" + bytes(2_000),
        b"ID3" + bytes(2_000),
        b"OggS" + bytes(2_000),
        b"fLaC" + bytes(2_000),
        wav(bytes(3_200), channels=0),
        wav(bytes(3_200), rate=0),
        wav(bytes(3_200), bits=0),
        wav(bytes(3_200))[:-1_000],
        file_of(SOUND, kind="FLAC")[:3_000],
        file_of(SOUND, kind="OGG")[:300],
        file_of(SOUND, kind="OGG")[:-10],
        file_of(SOUND, kind="OGG", subtype="OPUS")[:-10],
        MP3[: len(MP3) // 2],
        file_of(SOUND, kind="AIFF"),
        file_of(SOUND, kind="AU"),
        file_of(SOUND, kind="CAF"),
    ],
)
def test_a_broken_file_or_another_format_is_refused(file: bytes) -> None:
    with refused(BadRequest, "inputs"):
        read(file)


@pytest.mark.parametrize(
    ("kind", "rate", "written"),
    [
        ("audio/wav", 22_050, 22_050),
        ("audio/flac", 44_100, 44_100),
        ("audio/mpeg", 22_050, 22_050),
        ("audio/mpeg", 20_000, 22_050),
        ("audio/ogg", 22_050, 24_000),
        ("audio/ogg", 96_000, 48_000),
    ],
)
def test_speech_is_written_at_a_rate_that_the_encoding_has(
    kind: str, rate: int, written: int
) -> None:
    sound = 0.5 * np.sin(np.arange(3 * rate) / rate * 2 * np.pi * 440).astype(np.float32)
    file = convert_wav(wav_in_base64(sound, rate), kind)
    info = soundfile.info(BytesIO(file))
    assert (info.format, info.samplerate) == (AUDIO_TYPES[kind].format, written)
    heard = read(file)[RATE : 2 * RATE]
    assert np.abs(np.fft.rfft(heard)).argmax() == 440
    assert np.abs(heard).max() == pytest.approx(0.5, abs=0.05)


def test_samples_of_16_bits_are_little_endian_at_the_rate() -> None:
    loud = np.array([0.0, 1.0, -1.0, 0.5], np.float32)
    samples = np.frombuffer(wav_to_pcm(wav_in_base64(loud, RATE), RATE), "<i2")
    assert samples.tolist() == [0, 32_767, -32_768, 16_384]
    longer = wav_to_pcm(wav_in_base64(np.zeros(RATE, np.float32), RATE), 24_000)
    assert len(longer) == 2 * 24_000
