"""Sounds of telephones, which small audio models learn to name and to read.

`python -m hf_serve.demo_models.synthetic_audio` writes the samples of the modes that read audio
again.
"""

from __future__ import annotations

import base64
import json
import wave
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_serve.scripts.paths import ARTIFACTS

RATE = 8_000
# Frequencies in Hz of North American signals, and of the tones of answering machines.
SIGNALS = {
    "dial tone": (350, 440),
    "busy tone": (480, 620),
    "ringing tone": (440, 480),
    "fax tone": (1100,),
    "modem tone": (2100,),
}
LABELS = tuple(SIGNALS)
SECONDS = 0.4
# The two frequencies of each key.
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477)
KEYS = {
    key: (row, column)
    for row, keys in zip(ROWS, ("123", "456", "789", "*0#"), strict=True)
    for key, column in zip(keys, COLUMNS, strict=True)
}
FEWEST_KEYS, MOST_KEYS = 3, 6
TONE_SECONDS, PAUSE_SECONDS = (0.08, 0.12), (0.04, 0.07)
NUMBER_SECONDS = 1.2
SAMPLE_SEED = 5
SAMPLE_NUMBER = "55501"
CALIBRATION_ROWS = 24

Samples = npt.NDArray[np.float32]


def random(seed: str) -> np.random.Generator:
    """Return a generator of random numbers for a text."""
    return np.random.default_rng(list(seed.encode()))


def tone(frequencies: Sequence[float], seconds: float, rng: np.random.Generator) -> Samples:
    """Return a tone of some frequencies, with a random volume and little noise; of none, noise."""
    times = np.arange(round(seconds * RATE)) / RATE
    sines = [np.sin(2 * np.pi * (each * times + rng.random())) for each in frequencies]
    volume = rng.uniform(0.2, 0.8) / max(1, len(sines))
    noise = 0.01 * rng.standard_normal(len(times))
    return (volume * np.sum(sines, axis=0) + noise).astype(np.float32)


def signal(rng: np.random.Generator) -> tuple[Samples, str]:
    """Return a signal and its name."""
    label = str(rng.choice(LABELS))
    return tone(SIGNALS[label], SECONDS, rng), label


def dialled(rng: np.random.Generator, number: str | None = None) -> tuple[Samples, str]:
    """Return the tones of a number that is dialled, by default a random one, and the number."""
    count = int(rng.integers(FEWEST_KEYS, MOST_KEYS + 1))
    keys = list(number) if number else [str(key) for key in rng.choice(list(KEYS), count)]
    parts = [tone((), rng.uniform(*PAUSE_SECONDS), rng)]
    for key in keys:
        parts.append(tone(KEYS[key], rng.uniform(*TONE_SECONDS), rng))
        parts.append(tone((), rng.uniform(*PAUSE_SECONDS), rng))
    rest = NUMBER_SECONDS - sum(map(len, parts)) / RATE
    return np.concatenate([*parts, tone((), rest, rng)]), "".join(keys)


def dialled_inputs(rows: int, seed: int) -> list[str]:
    """Return numbers that are dialled in base64, for a calibration file."""
    rng = random(f"calibration {seed}")
    return [as_base64(dialled(rng)[0]) for _ in range(min(rows, CALIBRATION_ROWS))]


def signal_inputs(rows: int, seed: int) -> list[str]:
    """Return signals in base64, for a calibration file."""
    rng = random(f"calibration {seed}")
    return [as_base64(signal(rng)[0]) for _ in range(min(rows, CALIBRATION_ROWS))]


def as_wav(samples: Samples) -> bytes:
    """Return the bytes of a WAV file with one byte a sample."""
    stream = BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(RATE)
        file.writeframes((samples * 127 + 128).round().clip(0, 255).astype(np.uint8).tobytes())
    return stream.getvalue()


def as_base64(samples: Samples) -> str:
    """Return a WAV file in base64."""
    return base64.b64encode(as_wav(samples)).decode()


def write_sample(mode: str, samples: Samples, **parameters: Any) -> None:
    """Write the audio of a mode's sample and the request with it."""
    folder = ARTIFACTS / mode
    folder.mkdir(exist_ok=True)
    (folder / "sample.wav").write_bytes(as_wav(samples))
    body = {"inputs": as_base64(samples), **({"parameters": parameters} if parameters else {})}
    (folder / "sample.json").write_text(f"{json.dumps(body)}\n", encoding="utf-8")


if __name__ == "__main__":
    write_sample("audio_classification", signal(random(f"sample {SAMPLE_SEED}"))[0])
    write_sample(
        "automatic_speech_recognition", dialled(random(f"sample {SAMPLE_SEED}"), SAMPLE_NUMBER)[0]
    )
