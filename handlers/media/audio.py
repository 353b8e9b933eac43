"""Audio of requests: WAV, FLAC, OGG and MP3 files, read by libsndfile within limits.

The header of a file has its sampling rate, its channels and its length, which are checked before it
is decoded: a few kilobytes can have hours of silence. Headers may lie, so the limit of seconds
holds while a file is decoded, too. It is decoded in blocks, each of which is mixed to one channel
and resampled before the next is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.errors import (
    BadRequest,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    is_out_of_memory,
)
from handlers.media.files import MediaType

Samples = npt.NDArray[np.float32]

# What soundfile and soxr are installed by, for errors.
PACKAGES = ("soundfile", "soxr")
INSTALL = "pip install soundfile soxr"
EXPECTED = "send a WAV, FLAC, OGG or MP3 file, or one of these in base64"
AUDIO = MediaType("an audio file", "audio", EXPECTED)
# No other readers of libsndfile get to see a file.
FORMATS = frozenset({"WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "MPEG"})
BEGINNINGS = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3")
MIN_RATE, MAX_RATE = 1_000, 192_000
MAX_CHANNELS = 8
# Float samples are between -1 and 1 by convention. Those of integers, unscaled, are read as well,
# and greater ones would overflow where they are squared.
MAX_AMPLITUDE = 2.0**31
BLOCK = 65_536
# The size of a WAV file that is written while its length is not known.
UNKNOWN_SIZES = range(2**31 - 2**16, 2**32)


def read_audio(file: bytes, name: str, sampling_rate: int, max_seconds: float) -> Samples:
    """Return the samples of an audio file, mixed to one channel.

    Args:
        file: the bytes of the file.
        name: its name in an error.
        sampling_rate: the rate of the returned samples, in Hz.
        max_seconds: the maximum duration.

    Returns:
        Samples, usually between -1 and 1. Shape: (samples,).

    Raises:
        BadRequest: the file is broken, has no samples or samples that are no numbers, or is in
            another format.
        RequestTooLarge: it is longer.
        Unprocessable: its sampling rate or its number of channels is unusual.
    """
    # A package that is installed for these modes alone.
    import soundfile  # noqa: PLC0415

    if not _may_be_audio(file):
        raise _unreadable(name)
    try:
        with soundfile.SoundFile(BytesIO(file)) as sound:
            # After each read it seeks to where it is, which fails at an end that is not known.
            sound.seekable = lambda: False
            _check_header(sound, name, max_seconds)
            blocks = _mixed(sound, name, max_seconds)
            return _joined(blocks, sound.samplerate, sampling_rate)
    except RequestError:
        raise
    except Exception as error:  # each reader of libsndfile has errors of its own
        if is_out_of_memory(error):
            raise
        raise _unreadable(name) from None


def _may_be_audio(file: bytes) -> bool:
    """Return whether a file begins as one of these formats does, and is not cut."""
    if file.startswith(b"RIFF"):
        size = int.from_bytes(file[4:8], "little")
        is_cut = len(file) < size and size not in UNKNOWN_SIZES
        return file[8:12] == b"WAVE" and not is_cut
    # A frame of MP3 begins with eleven bits that are set.
    is_mp3 = len(file) > 1 and file[0] == 0xFF and file[1] & 0xE0 == 0xE0
    return is_mp3 or file.startswith(BEGINNINGS)


def _check_header(sound: Any, name: str, max_seconds: float) -> None:
    rate, channels = sound.samplerate, sound.channels
    if sound.format not in FORMATS:
        raise _unreadable(name)
    if not MIN_RATE <= rate <= MAX_RATE:
        raise Unprocessable(
            f"{name} has a sampling rate of {rate:,} Hz; send one between {MIN_RATE:,} and"
            f" {MAX_RATE:,}."
        )
    if channels > MAX_CHANNELS:
        raise Unprocessable(f"{name} has {channels:,} channels; send at most {MAX_CHANNELS}.")
    if _knows_length(sound):
        _check_length(sound.frames, sound, name, max_seconds)


def _knows_length(sound: Any) -> bool:
    """Return whether the header has the number of frames; libsndfile has 2**63 - 1 otherwise."""
    return bool(sound.frames < 2**62)


def _check_length(frames: int, sound: Any, name: str, max_seconds: float) -> None:
    seconds = frames / sound.samplerate
    if seconds > max_seconds:
        raise RequestTooLarge(
            f"{name} is longer than the {max_seconds:,g} seconds that this model takes; send it in"
            " parts."
        )
    if seconds * sound.channels * sound.samplerate > max_seconds * MAX_RATE:
        raise RequestTooLarge(
            f"{name} has {frames * sound.channels:,} samples in {sound.channels} channels; send"
            " fewer channels or a lower sampling rate."
        )


def _mixed(sound: Any, name: str, max_seconds: float) -> Iterator[Samples]:
    """Yield blocks of samples, the mean of all channels."""
    frames = 0
    while len(block := sound.read(BLOCK, dtype="float32", always_2d=True)):
        frames += len(block)
        _check_length(frames, sound, name, max_seconds)
        # NaN is no number that is less than another.
        if not (np.abs(block) <= MAX_AMPLITUDE).all():
            raise BadRequest(f"{name} has samples that are infinite, very large or no numbers.")
        yield block.mean(axis=1, dtype=np.float32)
    if not frames:
        raise BadRequest(f"{name} has no samples; {EXPECTED}.")
    if _knows_length(sound) and sound.format == "FLAC" and frames < sound.frames:
        raise _unreadable(name)


def _joined(blocks: Iterator[Samples], rate: int, sampling_rate: int) -> Samples:
    """Return all blocks as one array, with another sampling rate."""
    import soxr  # noqa: PLC0415

    if rate == sampling_rate:
        return np.concatenate(list(blocks))
    stream = soxr.ResampleStream(rate, sampling_rate, 1, dtype="float32")
    parts = [stream.resample_chunk(block) for block in blocks]
    rest = stream.resample_chunk(np.zeros(0, np.float32), last=True)
    return np.concatenate([*parts, rest])


def _unreadable(name: str) -> BadRequest:
    return BadRequest(f"{name} is no audio that can be read; {EXPECTED}.")
