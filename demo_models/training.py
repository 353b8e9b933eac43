"""The training loop: AdamW with warm-up, one pass over batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel
from transformers.utils import logging

from hf_serve.demo_models.evaluation import mean

Tick = Callable[[float], None]

WARM_UP = 0.1
# Rows of a batch that is only evaluated.
EVALUATED_ROWS = 16
THREADS = 2


@dataclass(frozen=True)
class Plan:
    """How a model is trained: rows written, rows a batch, and the highest learning rate."""

    rows: int
    batch: int
    rate: float


def fit(model: PreTrainedModel, features: list[Feature], plan: Plan, seed: int, tick: Tick) -> None:
    """Train in place; `tick` is called with the completed share, from 0 to 1."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = AdamW(weights, lr=plan.rate, weight_decay=0.01, fused=True)
    steps = -(-len(features) // plan.batch)
    schedule = LambdaLR(optimizer, lambda step: slope((step + 1) / (steps + 1)))
    # Dropout stays off: a single pass over rows that do not repeat has little to memorize.
    model.eval()
    pad_id = getattr(model.config, "pad_token_id", None)
    for step, batch in enumerate(batches(features, plan.batch, pad_id, Random(seed))):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        tick((step + 1) / steps)


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Seed torch and fix its threads, so that the same machine gives the same weights again."""
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from reporting that the heads are new: training them is the purpose."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def slope(done: float) -> float:
    """Return the share of the highest learning rate at a completed share of the training."""
    return min(done / WARM_UP, (1 - done) / (1 - WARM_UP))


Feature = dict[str, Any]
Item = TypeVar("Item")

# A pool of this many batches is sorted by length; more would make the batches too similar.
POOL = 25


def batches(
    features: list[Feature], size: int, pad_id: int | None, rng: Random
) -> Iterator[dict[str, Any]]:
    """Yield every feature once, in random order, as batches padded to their longest row."""
    pools = chunks(rng.sample(features, len(features)), POOL * size)
    together = [rows for pool in pools for rows in chunks(sorted(pool, key=length), size)]
    for rows in rng.sample(together, len(together)):
        yield collate(rows, pad_id)


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split a list into chunks of a size; the last may be shorter."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def collate(rows: Sequence[Feature], pad_id: int | None) -> dict[str, Any]:
    """Pad rows on the right: ids with `pad_id`, labels with -100 (no loss), the rest with 0.

    Returns:
        Tensors of shape (rows, longest of the key); (rows,) for what is one number a row; (rows,
        …) for tensors; and lists of mappings, such as the boxes of an image.
    """
    padding = {"input_ids": pad_id or 0, "labels": -100}
    return {key: _padded([row[key] for row in rows], padding.get(key, 0)) for key in rows[0]}


def length(feature: Feature) -> int:
    """Return the number of tokens of a row; 0 for one without tokens."""
    return len(feature.get("input_ids", ()))


def _padded(values: Sequence[Any], filler: int) -> Any:
    if isinstance(values[0], Mapping):
        return list(values)
    if isinstance(values[0], Tensor):
        return torch.stack(list(values))
    longest = max((len(value) for value in values if isinstance(value, list)), default=0)
    return torch.tensor(
        [
            value + [filler] * (longest - len(value)) if isinstance(value, list) else value
            for value in values
        ]
    )


@torch.inference_mode()
def forward(model: PreTrainedModel, features: list[Feature]) -> list[dict[str, Tensor]]:
    """Return each row's outputs by name, in the order of the rows.

    Outputs for each token include those for the padding after the tokens of the row.
    """
    results: dict[int, dict[str, Tensor]] = {}
    for rows in chunks(
        sorted(range(len(features)), key=lambda row: length(features[row])), EVALUATED_ROWS
    ):
        pad_id = getattr(model.config, "pad_token_id", None)
        batch = collate([features[row] for row in rows], pad_id)
        output = model(**to_device(batch, model.device))
        for place, row in enumerate(rows):
            results[row] = {name: values[place].cpu() for name, values in output.items()}
    return [results[row] for row in range(len(features))]


def accuracy(model: PreTrainedModel, features: list[Feature]) -> float:
    """Return the share of rows whose label has the highest logit."""
    labels = [row.pop("labels") for row in features]
    pairs = zip(forward(model, features), labels, strict=True)
    return mean(int(out["logits"].argmax()) == label for out, label in pairs)


def to_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a batch with its tensors on a device; the boxes of images stay where they are."""
    return {
        name: each.to(device) if isinstance(each, Tensor) else each for name, each in batch.items()
    }
