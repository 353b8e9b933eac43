"""One question to the model, free of any wire format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handlers.listener import Listener


@dataclass(frozen=True)
class Request:
    """What is asked.

    `alone` is False for an item of a list: transformers pipelines answer some items in a list
    with another shape than the same item sent by itself. `listener` hears a generated text while it
    is made.
    """

    inputs: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = True
    listener: Listener | None = None
