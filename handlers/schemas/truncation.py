"""Parameters of a text that may be too long for a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from handlers.batching.padding import Side
from handlers.schemas.parameters import Parameters
from handlers.schemas.pipeline_names import in_lower_case


class TruncationParameters(Parameters):
    """Whether a text that is too long is cut, and at which end."""

    truncate: bool | None = None
    """Cuts a text that is too long, instead of refusing it. Without it, `truncation` of the YAML.
    """
    truncation_direction: Annotated[Side, BeforeValidator(in_lower_case)] = "right"
    """The end of a text that is cut."""
