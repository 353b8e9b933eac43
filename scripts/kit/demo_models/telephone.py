"""Sounds of telephones, which small audio models learn to name and to read.

`python -m scripts.kit.demo_models.telephone` writes the samples of the modes that read audio again.
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

from scripts.kit.places import ARTIFACTS

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
SAMPLE_SEED = 5
CALIBRATION_ROWS = 24

Samples = npt.NDArray[np.float32]


def random(seed: str) -> np.random.Generator:
    """Return a generator of random numbers for a text."""
    return np.random.default_rng(list(seed.encode()))


def tone(frequencies: Sequence[float], seconds: float, rng: np.random.Generator) -> Samples:
    """Return a tone of some frequencies, with a random volume and little noise."""
    times = np.arange(round(seconds * RATE)) / RATE
    waves = [np.sin(2 * np.pi * (each * times + rng.random())) for each in frequencies]
    volume = rng.uniform(0.2, 0.8) / len(waves)
    noise = 0.01 * rng.standard_normal(len(times))
    return (volume * np.sum(waves, axis=0) + noise).astype(np.float32)


def signal(rng: np.random.Generator) -> tuple[Samples, str]:
    """Return a signal and its name."""
    label = str(rng.choice(LABELS))
    return tone(SIGNALS[label], SECONDS, rng), label


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
