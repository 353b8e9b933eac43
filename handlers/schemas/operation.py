"""What the engine does for a request."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """What the engine does for a request, in the order in which a batch is run."""

    TOKENIZE = 1
    DETOKENIZE = 2
    PREDICT = 3
    # Last, as it takes longest.
    EXPLAIN = 4
