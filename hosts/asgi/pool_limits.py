"""The options of servers that load models on demand.

This module imports nothing of `handlers`, as :mod:`hf_serve.hosts.archives` does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

GIB = 1 << 30
LOAD_SECONDS = 120.0

ModelsMax = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Load a model with its first request, and at most so many; the least recently used"
        " one is unloaded. 0: any number.",
    ),
]
ModelsMemory = Annotated[
    float | None,
    typer.Option(min=0, help="GiB that all models may have; implies loading on demand."),
]
KeepAlive = Annotated[
    float | None,
    typer.Option(
        help="Seconds without a request after which a model is unloaded, -1: never; implies"
        " loading on demand."
    ),
]
LoadTimeout = Annotated[float, typer.Option(min=0, help="Seconds that a request waits for a load.")]
Pin = Annotated[
    list[str] | None,
    typer.Option(
        help="A model that is loaded at the start and stays, repeated; implies loading on demand."
    ),
]


@dataclass(frozen=True)
class PoolLimits:
    """How many models are loaded, and for how long.

    Attributes:
        models_max: how many are loaded at most; 0 for any number.
        memory_bytes: how much memory they have together at most; 0 for any.
        keep_alive: after how many seconds without a request a model is unloaded; never if it is
            negative.
        load_seconds: how long a request waits for its model.
        pinned: models that are loaded at the start, and stay.
    """

    models_max: int = 0
    memory_bytes: int = 0
    keep_alive: float = -1.0
    load_seconds: float = LOAD_SECONDS
    pinned: frozenset[str] = frozenset()

    @classmethod
    def of_options(
        cls,
        models_max: int | None,
        models_memory: float | None,
        keep_alive: float | None,
        load_timeout: float,
        pin: list[str] | None,
    ) -> PoolLimits | None:
        """Return the limits of a command line; None where it has none, so that all are loaded.

        Raises:
            BadParameter: more models are pinned than may be loaded.
        """
        if models_max is models_memory is keep_alive is None and not pin:
            return None
        pinned = frozenset(pin or ())
        if models_max and len(pinned) > models_max:
            raise typer.BadParameter(
                f"{len(pinned)} models are pinned, and --models-max is {models_max}."
            )
        return cls(
            models_max or 0,
            int((models_memory or 0) * GIB),
            -1.0 if keep_alive is None else keep_alive,
            load_timeout,
            pinned,
        )

    def arguments(self) -> list[str]:
        """Return the options of a command line that has these limits."""
        options: dict[str, object] = {
            "--models-max": self.models_max,
            "--models-memory": self.memory_bytes / GIB,
            "--keep-alive": self.keep_alive,
            "--load-timeout": self.load_seconds,
        }
        pinned = [each for name in sorted(self.pinned) for each in ("--pin", name)]
        return [str(each) for option in options.items() for each in option] + pinned
