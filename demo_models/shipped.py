"""The demo models that come with the kit: what training changed in MiniLM, or a tiny model.

A file in `artifacts/demo_weights/` has the trained tensors in half precision, or all tensors of a
model in 8 bits, and in its metadata the measures of the model and the tokenizer of a whole one.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import Score
from hf_serve.demo_models.low_rank import merge, trained_tensors
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import quiet, repeatable
from hf_serve.scripts.paths import ARTIFACTS

FOLDER = ARTIFACTS / "demo_weights"
SCALE = ".scale"
LEVELS = 127

Tensors = dict[str, Tensor]


class ShippedTrainer(Trainer):
    """A trainer whose model is trained once, for long, and comes with the kit.

    Attributes:
        whole: whether its model ships as a whole, not as additions to MiniLM.
    """

    whole: ClassVar[bool] = False

    @abstractmethod
    def measure(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        split: Split,
        rows: int,
        seed: int,
    ) -> dict[str, float]:
        """Measure the model on texts of a split.

        The first measure is on the rows written by hand, the second on rows of the grammar.
        """

    def quality(self, measures: dict[str, float]) -> float:
        """Return a number that is highest for the best of some checkpoints."""
        written, generated, *_ = measures.values()
        return (2 * written + generated) / 3

    def rebuild(self, tokenizer: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the model before training with a tokenizer that is given as JSON.

        Only a trainer whose model ships as a whole has its tokenizer, too.
        """
        raise NotImplementedError

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Measure the model on held-out rows."""
        return self.measure(model, tokenizer, "held_out", rows, seed)

    @property
    def path(self) -> Path:
        """The file with the weights, which is named after the mode and need not exist."""
        return FOLDER / f"{type(self).__module__.rpartition('.')[2]}.safetensors"

    @property
    def included(self) -> bool:
        """Whether the file with the weights exists."""
        return self.path.is_file()

    def install(self, folder: Path) -> dict[str, float]:
        """Install the model that comes with the kit and return its recorded measures."""
        return install(self, self.path, folder).measures


def pack(
    trainer: ShippedTrainer, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors and the metadata of the file for a model that has been trained."""
    if not trainer.whole:
        halved = {name: each.half().cpu() for name, each in trained_tensors(model).items()}
        return halved, {}
    tensors: Tensors = {}
    for name, weight in model.named_parameters():
        tensors |= _in_8_bits(name, weight.detach().cpu())
    return tensors, {"tokenizer": tokenizer.backend_tokenizer.to_str()}


def unpack(
    trainer: ShippedTrainer, tensors: Tensors, metadata: dict[str, str], seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model that a file describes, in single precision, and its tokenizer."""
    with quiet(), repeatable(seed):
        if trainer.whole:
            model, tokenizer = trainer.rebuild(metadata["tokenizer"])
            merge(model, _from_8_bits(tensors))
        else:
            model, tokenizer = trainer.start(seed)
            merge(model, tensors)
    return model.eval(), tokenizer


def write(path: Path, tensors: Tensors, metadata: dict[str, str], score: Score) -> None:
    """Write the file of a mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contiguous = {name: each.contiguous() for name, each in tensors.items()}
    save_file(contiguous, path, {**metadata, "score": json.dumps(asdict(score))})
    path.chmod(0o644)


def read(path: Path) -> tuple[Tensors, dict[str, str], Score]:
    """Return the tensors, the metadata and the score in a file."""
    with safe_open(path, "pt") as file:
        metadata: dict[str, str] = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts: dict[str, Any] = json.loads(metadata.pop("score"))
    return tensors, metadata, Score(**facts)


def install(trainer: ShippedTrainer, path: Path, folder: Path) -> Score:
    """Write the checkpoint of a model that comes with the kit to a folder; return its score."""
    tensors, metadata, score = read(path)
    model, tokenizer = unpack(trainer, tensors, metadata, score.seed)
    trainer.save(model, tokenizer, folder)
    return score


def _in_8_bits(name: str, weight: Tensor) -> Tensors:
    """A matrix as bytes with a scale for each row; other weights in half precision."""
    if weight.dim() < 2:
        return {name: weight.half()}
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-8) / LEVELS
    return {name: (weight / scale).round().to(torch.int8), name + SCALE: scale}


def _from_8_bits(tensors: Tensors) -> Tensors:
    return {
        name: tensor.float() * tensors[name + SCALE] if name + SCALE in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(SCALE)
    }
