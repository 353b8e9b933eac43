"""Audio of requests and results: WAV, FLAC, OGG and MP3 files, read by libsndfile within limits.

The header of a file has its sampling rate, its channels and its length, which are checked before it
is decoded: a few kilobytes can have hours of silence. Headers may lie, so the limit of seconds
holds while a file is decoded, too. It is decoded in blocks, each of which is mixed to one channel
and resampled before the next is read.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import SEEK_END, SEEK_SET, BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compat.device_errors import is_out_of_memory
from ..errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from .files import MediaType

Samples = npt.NDArray[np.float32]

# What soundfile and soxr are installed by, for errors.
PACKAGES = ("soundfile", "soxr")
INSTALL = "pip install soundfile soxr"
EXPECTED = "send a WAV, FLAC, OGG or MP3 file, or one of these in base64"
AUDIO = MediaType("an audio file", "audio", EXPECTED)
# No other readers of libsndfile get to see a file.
FORMATS = frozenset({"WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "MPEG"})
OGG = b"OggS"
BEGINNINGS = (b"RF64", b"fLaC")
MIN_RATE, MAX_RATE = 1_000, 192_000
MAX_CHANNELS = 8
# Float samples are between -1 and 1 by convention. Those of integers, unscaled, are read as well,
# and greater ones would overflow where they are squared.
MAX_AMPLITUDE = 2.0**31
BLOCK = 65_536
# An MP3 file that ends within a frame loses the block in which it does; a frame has 1,152 samples.
MP3_BLOCK = 4 * 1_152
# Longer files have no length in their header. libsndfile has 2**63 - 1 for some of them.
MOST_FRAMES = 2**36
# Bytes after the last frame of an MP3 file, such as tags.
MAX_MP3_REST = 65_536
# Frames that a file may have fewer than its header says: those of an MP3 file are counted in
# different ways.
MISSING_FRAMES = {"FLAC": 0, "MP3": 2 * 1_152, "MPEG": 2 * 1_152}
# The size of a WAV file that is written while its length is not known.
UNKNOWN_SIZES = range(2**31 - 2**16, 2**32)


@dataclass(frozen=True)
class AudioType:
    """How libsndfile writes a type of files.

    Attributes:
        format: its name of the format.
        subtype: its name of the encoding.
        rates: the sampling rates that the encoding has, in Hz; none for any.
    """

    format: str
    subtype: str
    rates: Sequence[int] = ()


MP3_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
# The types of files that are written, of 16 bits where they are lossless.
AUDIO_TYPES = {
    "audio/wav": AudioType("WAV", "PCM_16"),
    "audio/flac": AudioType("FLAC", "PCM_16"),
    "audio/mpeg": AudioType("MP3", "MPEG_LAYER_III", MP3_RATES),
    "audio/ogg": AudioType("OGG", "OPUS", OPUS_RATES),
}


def read_audio(file: bytes, name: str, sampling_rate: int, max_seconds: float) -> Samples:
    """Return the samples of an audio file, mixed to one channel.

    Args:
        sampling_rate: the rate of the returned samples, in Hz.

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
    stream = _stream_of(file)
    try:
        with soundfile.SoundFile(stream) as sound:
            # After each read it seeks to where it is, which fails at an end that is not known.
            sound.seekable = lambda: False
            _check_header(sound, name, max_seconds)
            blocks = _mixed(sound, stream, name, max_seconds)
            return _joined(blocks, sound.samplerate, sampling_rate)
    except RequestError:
        raise
    except Exception as error:  # each reader of libsndfile has its own errors
        if is_out_of_memory(error):
            raise
        raise _unreadable(name) from None


def seconds_of(file: Any) -> float | None:
    """Return the duration of an audio file by its header; None where it is not known."""
    import soundfile  # noqa: PLC0415

    try:
        sound = soundfile.info(_stream_of(file))
    except Exception:  # noqa: BLE001 - each reader of libsndfile has its own errors
        return None
    return sound.frames / sound.samplerate if _knows_length(sound) else None


def wav_in_base64(samples: Samples, sampling_rate: int) -> str:
    """Return samples between -1 and 1 as a WAV file of 16 bits in base64. Shape: (samples,)."""
    return base64.b64encode(_file_of(samples, sampling_rate, "audio/wav")).decode("ascii")


def convert_wav(text: str, content_type: str) -> bytes:
    """Return a WAV file in base64 as a file of one of `AUDIO_TYPES`.

    It is resampled where the encoding does not have its sampling rate.
    """
    if content_type == "audio/wav":
        return base64.b64decode(text)
    samples, rate = _samples_of(text)
    rates = AUDIO_TYPES[content_type].rates or (rate,)
    new_rate = min((each for each in rates if each >= rate), default=max(rates))
    return _file_of(_resampled(samples, rate, new_rate), new_rate, content_type)


def wav_to_pcm(text: str, sampling_rate: int) -> bytes:
    """Return the samples of a WAV file in base64, of 16 bits, little-endian, at another rate."""
    samples, rate = _samples_of(text)
    scaled = np.round(_resampled(samples, rate, sampling_rate) * 2**15)
    return scaled.clip(-(2**15), 2**15 - 1).astype("<i2").tobytes()


def _samples_of(text: str) -> tuple[Samples, int]:
    import soundfile  # noqa: PLC0415

    samples, rate = soundfile.read(BytesIO(base64.b64decode(text)), dtype="float32")
    return samples, int(rate)


def _resampled(samples: Samples, rate: int, new_rate: int) -> Samples:
    import soxr  # noqa: PLC0415

    return samples if rate == new_rate else np.asarray(soxr.resample(samples, rate, new_rate))


def _file_of(samples: Samples, rate: int, content_type: str) -> bytes:
    import soundfile  # noqa: PLC0415

    kind, stream = AUDIO_TYPES[content_type], BytesIO()
    settings = {"format": kind.format, "subtype": kind.subtype}
    with soundfile.SoundFile(stream, "w", rate, channels=1, **settings) as sound:
        # Encoders of libsndfile have all that is written at once on their stack.
        for start in range(0, len(samples), BLOCK):
            sound.write(samples[start : start + BLOCK])
    return stream.getvalue()


class _Mp3File(BytesIO):
    """An MP3 file that seems to be very long.

    Most MP3 files have their length in the first frame. Where it is not there, libsndfile guesses
    it from the bytes of the file and those of its first frame, and would stop there: with a bit
    rate that varies, long before the end.
    """

    FAR = 2**40

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return super().seek(*((self.FAR + offset,) if whence == SEEK_END else (offset, whence)))

    def readinto(self, buffer: Any) -> int:
        """Read bytes: zeros at the far end, where a reader looks for tags."""
        if self.tell() < self.FAR // 2:
            return super().readinto(buffer)
        buffer[:] = bytes(len(buffer))
        return len(buffer)

    @property
    def is_read(self) -> bool:
        """Whether nothing but tags is left to read."""
        return self.tell() + MAX_MP3_REST >= len(self.getbuffer())


def _stream_of(file: bytes) -> BytesIO:
    return _Mp3File(file) if _is_mp3(file) else BytesIO(file)


def _is_mp3(file: bytes) -> bool:
    # A frame begins with eleven bits that are set.
    begins_with_frame = len(file) > 1 and file[0] == 0xFF and file[1] & 0xE0 == 0xE0
    return begins_with_frame or file.startswith(b"ID3")


def _may_be_audio(file: bytes) -> bool:
    """Return whether a file begins as one of these formats does, and is not cut."""
    if file.startswith(b"RIFF"):
        size = int.from_bytes(file[4:8], "little")
        is_cut = len(file) < size and size not in UNKNOWN_SIZES
        return file[8:12] == b"WAVE" and not is_cut
    if file.startswith(OGG):
        return _ends_with_page(file)
    return _is_mp3(file) or file.startswith(BEGINNINGS)


def _ends_with_page(file: bytes) -> bool:
    """Return whether the last page of an OGG file is whole.

    The number of its segments and the size of each come after 26 bytes of its header.
    """
    page = file[file.rindex(OGG) :]
    sizes = page[27 : 27 + page[26]] if len(page) > 26 else b""
    return len(page) > 26 and len(page) >= 27 + page[26] + sum(sizes)


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
    """Return whether the header has the number of frames."""
    return bool(sound.frames < MOST_FRAMES)


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


def _mixed(sound: Any, stream: BytesIO, name: str, max_seconds: float) -> Iterator[Samples]:
    """Yield blocks of samples, the mean of all channels."""
    frames = 0
    for block in _blocks(sound, stream):
        frames += len(block)
        _check_length(frames, sound, name, max_seconds)
        # NaN is no number that is less than another.
        if not (np.abs(block) <= MAX_AMPLITUDE).all():
            raise BadRequest(f"{name} has samples that are infinite, very large or no numbers.")
        yield block.mean(axis=1, dtype=np.float32)
    if not frames:
        raise BadRequest(f"{name} has no samples; {EXPECTED}.")
    if _knows_length(sound) and frames < sound.frames - MISSING_FRAMES.get(sound.format, math.inf):
        raise _unreadable(name)


def _blocks(sound: Any, stream: BytesIO) -> Iterator[Samples]:
    """Yield the samples of a file. Shape of a block: (frames, channels)."""
    import soundfile  # noqa: PLC0415

    size = MP3_BLOCK if isinstance(stream, _Mp3File) else BLOCK
    try:
        while len(block := sound.read(size, dtype="float32", always_2d=True)):
            yield block
    except soundfile.LibsndfileError:
        # What follows the last frame of an MP3 file, tags or a part of a frame, is no frame.
        if not isinstance(stream, _Mp3File) or not stream.is_read:
            raise


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
