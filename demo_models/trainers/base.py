"""The interface of a trainer: a model to start from, rows to train on, and a measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.synthetic_images import drawn_features, drawn_inputs
from hf_serve.demo_models.training import Feature, Plan, Tick, fit, quiet, repeatable


class Trainer(ABC):
    """How the demo model of one mode is trained; `evaluation_rows` held-out rows measure it."""

    plan: ClassVar[Plan]
    evaluation_rows: ClassVar[int]

    @abstractmethod
    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the model before training, and its tokenizer."""

    def trained(self, model: Any) -> Any:
        """Return the module with a loss that trains a model: the model, where it has one."""
        return model

    @abstractmethod
    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write training rows and encode them with their targets."""

    @abstractmethod
    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Measure the model on held-out rows; each measure has a name."""

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write the inputs of the mode's calibration file; none for one that is written by hand."""
        return []

    def calibration_bodies(self, rows: int, seed: int) -> list[dict[str, Any]]:
        """Write the requests of the mode's calibration file, with parameters where it has any."""
        return [{"inputs": each} for each in self.calibration_inputs(rows, seed)]

    @property
    def included(self) -> bool:
        """Whether the model comes with the kit, so that none need be trained."""
        return False

    def install(self, folder: Path) -> dict[str, float]:
        """Install the model that comes with the kit and return its recorded measures."""
        raise NotImplementedError

    def train(
        self, folder: Path, *, seed: int, rows: int, evaluation_rows: int, tick: Tick
    ) -> dict[str, float]:
        """Train a model, save it with its tokenizer to a folder and return its measures."""
        with quiet(), repeatable(seed):
            model, tokenizer = self.start(seed)
            fit(self.trained(model), self.features(tokenizer, rows, seed), self.plan, seed, tick)
            measures = self.evaluate(model, tokenizer, evaluation_rows, seed)
        self.save(model, tokenizer, folder)
        return measures

    def save(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
    ) -> None:
        """Write the checkpoint to a folder."""
        with quiet():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        for path in folder.iterdir():
            # safetensors writes for the owner alone; a worker may run as another user.
            path.chmod(0o644)


class MediaTrainer(Trainer):
    """Trains a model on images or sounds that are made for a seed."""

    @abstractmethod
    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Return rows as the processor reads them, with their targets."""

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Return the rows to train on."""
        return self.rows(tokenizer, rows, f"train {seed}")

    def held_out(self, processor: Any, count: int, seed: int) -> list[Feature]:
        """Return the rows that measure a model."""
        return self.rows(processor, count, f"held out {seed}")

    def without_labels(
        self, processor: Any, count: int, seed: int
    ) -> tuple[list[Feature], list[Any]]:
        """Return the rows that measure a model, and their targets."""
        held_out = self.held_out(processor, count, seed)
        return held_out, [row.pop("labels") for row in held_out]


class ImageTrainer(MediaTrainer):
    """Trains a model of images on drawings of coloured shapes, which calibrate its exports, too."""

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with the numbers of their labels."""
        return drawn_features(processor, count, seed)

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images."""
        return drawn_inputs(rows, seed)
