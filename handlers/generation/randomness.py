"""Random numbers that one computation draws, without touching anybody else's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from handlers.process.ranks import broadcast_from_rank0


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Seed torch within the block, from the system where no seed is given."""
    with torch.random.fork_rng():
        torch.manual_seed(broadcast_from_rank0(secrets.randbits(63)) if seed is None else seed)
        yield
