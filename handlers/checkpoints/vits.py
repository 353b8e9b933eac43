"""A checkpoint of VITS, such as one of Massively Multilingual Speech (MMS-TTS)."""

from __future__ import annotations

from dataclasses import dataclass

from handlers.checkpoints.checkpoint import Checkpoint
from handlers.errors import WrongCheckpoint
from handlers.process.packages import require_package

VITS = "vits"
# Packages that tokenizers import when the first text needs them.
PHONEMIZER = "pip install phonemizer, and install espeak-ng with the system's package manager"
UROMAN = "pip install uroman"


@dataclass(frozen=True)
class VitsCheckpoint(Checkpoint):
    """A checkpoint of VITS without its weights."""

    def check(self, auto_class: str) -> None:
        """Check that the model is VITS.

        Raises:
            WrongCheckpoint: it is another one, or needs custom code.
        """
        if self.config.model_type != VITS:
            raise WrongCheckpoint(
                "config.json",
                f"has model_type {self.config.model_type}, and mode: text_to_speech serves VITS"
                " alone",
                "use a checkpoint of VITS, such as facebook/mms-tts-eng",
            )
        super().check(auto_class)

    def require_packages(self) -> None:
        """Check that the packages of the tokenizer are installed.

        Raises:
            WrongConfig: one is not.
        """
        tokenizer = self.any_tokenizer
        if getattr(tokenizer, "phonemize", False):
            require_package("phonemizer", "tokenizer_config.json: phonemize", PHONEMIZER)
        if getattr(tokenizer, "is_uroman", False):
            require_package("uroman", "tokenizer_config.json: is_uroman", UROMAN)

    @property
    def sampling_rate(self) -> int:
        """The sampling rate of its waveforms, in Hz."""
        return int(self.config.sampling_rate)

    @property
    def speakers(self) -> int:
        """The number of its speakers."""
        return int(self.config.num_speakers)
