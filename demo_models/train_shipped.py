"""Training of the demo models that come with the kit, once and for long.

`python -m hf_serve.demo_models.train_shipped` writes `artifacts/demo_weights/` again, which
takes minutes on a GPU and hours without one. With `--evaluate`, it only measures the models and
writes their scores again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models import shipped
from hf_serve.demo_models.evaluation import Score
from hf_serve.demo_models.low_rank import add_low_rank
from hf_serve.demo_models.shipped import ShippedTrainer
from hf_serve.demo_models.trainers import trainer_of
from hf_serve.demo_models.training import batches, quiet, repeatable, slope, to_device

SEED = 7
# Rows that a process writes at a time.
CHUNK = 3200
# Checkpoints that are compared, the first step that has one, and rows of the grammar for it.
LOOKS, FIRST_LOOK, VALIDATION_ROWS = 16, 100, 200
# The weights that are compared are averages, in which the last 500 steps count most.
AVERAGE = 0.998
# The first entry of MiniLM's vocabulary that is a word; those before are characters and marks.
ORDINARY = 1996
MASK = 103


@dataclass(frozen=True)
class LongPlan:
    """A long training.

    Attributes:
        steps: batches.
        batch: rows of each.
        rate: the highest learning rate.
        rank: of the matrices that are added to MiniLM's.
        layers: how many of its layers get them, counted from the last.
        noise: the share of tokens that are replaced by random ones or by [MASK].
        smoothing: how much of each label's probability is given to the other labels.
        seconds: of training at most.
    """

    steps: int
    batch: int
    rate: float
    rank: int = 0
    layers: int = 6
    noise: float = 0.0
    smoothing: float = 0.0
    seconds: float = 3600.0


LONG_PLANS = {
    "question_answering": LongPlan(3600, 48, 4e-4, rank=32, noise=0.05),
    "sequence_classification": LongPlan(2000, 64, 6e-4, rank=28, noise=0.15, smoothing=0.1),
    "token_classification": LongPlan(2000, 64, 8e-4, rank=32, noise=0.1, smoothing=0.05),
    "text_generation": LongPlan(8000, 64, 2e-3),
}
MODES = tuple(LONG_PLANS)


def train(mode: str, plan: LongPlan, workers: int, path: Path) -> Score:
    """Train the model of a mode and write its file; the best of some checkpoints is taken."""
    trainer = _shipped(mode)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with quiet(), repeatable(SEED):
        model, tokenizer = trainer.start(SEED)
        if not trainer.whole:
            add_low_rank(model, plan.rank, plan.layers)
        best = _fit(trainer, model.to(device), tokenizer, plan, workers)
    tensors, metadata = shipped.pack(trainer, best, tokenizer)
    score = evaluate(mode, trainer, tensors, metadata, device)
    shipped.write(path, tensors, metadata, score)
    return score


def evaluate(
    mode: str,
    trainer: ShippedTrainer,
    tensors: dict[str, Tensor],
    metadata: dict[str, str],
    device: torch.device,
) -> Score:
    """Measure the model that a file describes, as it is installed, on held-out rows."""
    model, tokenizer = shipped.unpack(trainer, tensors, metadata, SEED)
    measures = trainer.evaluate(model.to(device), tokenizer, trainer.evaluation_rows, SEED)
    return Score(mode, SEED, trainer.evaluation_rows, measures)


def _shipped(mode: str) -> ShippedTrainer:
    trainer = trainer_of(mode)
    if not isinstance(trainer, ShippedTrainer):
        raise TypeError(f"no model of {mode} comes with the kit")
    return trainer


def _fit(
    trainer: ShippedTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    plan: LongPlan,
    workers: int,
) -> PreTrainedModel:
    """Train in place and return the best of the averaged checkpoints."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = AdamW(weights, lr=plan.rate, weight_decay=0.01)
    average, best, highest = deepcopy(model), model, float("-inf")
    averaged = [weight for weight in average.parameters() if weight.requires_grad]
    began, looked = time.monotonic(), 0
    model.train()
    for step, batch in enumerate(_batches(trainer, tokenizer, plan, workers)):
        passed = (time.monotonic() - began) / plan.seconds
        done = max(step / plan.steps, passed)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * slope(done)
        loss = _loss(plan, model, _noisy(plan, model, batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        decay = min(AVERAGE, (1 + step) / (10 + step))
        with torch.no_grad():
            for mean_weight, weight in zip(averaged, weights, strict=True):
                mean_weight.lerp_(weight, 1 - decay)
        if step + 1 == FIRST_LOOK or done * LOOKS >= looked + 1 or step + 1 == plan.steps:
            looked = int(done * LOOKS)
            measures = trainer.measure(average.eval(), tokenizer, "validation", VALIDATION_ROWS, 1)
            _report(f"{step + 1} steps, loss {loss:.4f}, validation {measures}", began)
            if (quality := trainer.quality(measures)) > highest:
                best, highest = deepcopy(average), quality
    return best


def _batches(
    trainer: ShippedTrainer, tokenizer: PreTrainedTokenizerBase, plan: LongPlan, workers: int
) -> Iterator[dict[str, Any]]:
    rows = plan.steps * plan.batch
    chunks = [
        (trainer, tokenizer, min(CHUNK, rows - start), plan.batch, SEED * 100_000 + number)
        for number, start in enumerate(range(0, rows, CHUNK))
    ]
    if not workers:
        for chunk in chunks:
            yield from _written(chunk)
        return
    with get_context("spawn").Pool(workers) as pool:
        for written in pool.imap(_written, chunks):
            for batch in written:
                yield {name: torch.from_numpy(each) for name, each in batch.items()}


def _written(chunk: tuple[ShippedTrainer, PreTrainedTokenizerBase, int, int, int]) -> list[Any]:
    """Write rows as batches; arrays are what another process passes on fast."""
    trainer, tokenizer, rows, batch, seed = chunk
    torch.set_num_threads(1)
    features = trainer.features(tokenizer, rows, seed)
    written = batches(features, batch, tokenizer.pad_token_id, Random(seed))
    return [{name: each.numpy() for name, each in batch.items()} for batch in written]


def _noisy(plan: LongPlan, model: PreTrainedModel, batch: dict[str, Any]) -> dict[str, Any]:
    """Replace some tokens by random ones or by [MASK], so that not a single word decides."""
    batch = to_device({name: torch.as_tensor(each) for name, each in batch.items()}, model.device)
    if not plan.noise:
        return batch
    ids = batch["input_ids"]
    chance = torch.rand(ids.shape, device=ids.device)
    random = torch.randint_like(ids, model.config.vocab_size - ORDINARY) + ORDINARY
    random[chance < plan.noise / 2] = MASK
    noisy = (chance < plan.noise) & (ids >= ORDINARY)
    return {**batch, "input_ids": torch.where(noisy, random, ids)}


def _loss(plan: LongPlan, model: PreTrainedModel, batch: dict[str, Any]) -> Tensor:
    with _precision(model.device):
        output = model(**batch)
    if not plan.smoothing:
        loss: Tensor = output.loss
        return loss.float()
    logits, labels = output.logits.float(), batch["labels"]
    flat = logits.reshape(-1, logits.shape[-1])
    return cross_entropy(flat, labels.reshape(-1), label_smoothing=plan.smoothing)


def _precision(device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def _report(text: str, began: float) -> None:
    print(f"{time.monotonic() - began:.0f} s: {text}", flush=True)  # noqa: T201 - a long run


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the models of some modes, or of all, or measure them again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modes", nargs="*", default=MODES, metavar="MODE")
    parser.add_argument("--out", type=Path, default=shipped.FOLDER)
    parser.add_argument("--workers", type=int, default=2, help="processes that write rows")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float, help="most seconds of training for each mode")
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args(arguments)
    for mode in options.modes:
        path = options.out / f"{mode}.safetensors"
        if options.evaluate:
            tensors, metadata, _ = shipped.read(path)
            score = evaluate(mode, _shipped(mode), tensors, metadata, torch.device("cpu"))
            shipped.write(path, tensors, metadata, score)
        else:
            plan = LONG_PLANS[mode]
            plan = replace(plan, steps=options.steps or plan.steps)
            plan = replace(plan, seconds=options.seconds or plan.seconds)
            score = train(mode, plan, options.workers, path)
        print(mode, score, f"{path.stat().st_size:,} bytes", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
