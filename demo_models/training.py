"""The training loop: AdamW with warm-up, one pass over batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import torch
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel
from transformers.utils import logging

from demo_models.batches import Feature, batches

Tick = Callable[[float], None]

WARM_UP = 0.1
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
