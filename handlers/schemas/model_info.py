"""What a served model tells about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from handlers.config.handler_section import HandlerSection

Schema = Mapping[str, Any]
TOLD_SETTINGS = ("quantization", "responses")


@dataclass(frozen=True)
class Limits:
    """How much one request may hold; None where there is no limit.

    Attributes:
        max_length: tokens of a text, or of a window of one.
        max_rows: items of a list, or windows of a text.
        max_characters: characters of a text.
        truncation: whether a text with more tokens is cut, or refused.
    """

    max_length: int | None
    max_rows: int
    max_characters: int
    truncation: bool


@dataclass(frozen=True)
class ModelInfo:
    """A served model, as a client should know it.

    Attributes:
        name: the name under which TorchServe serves it.
        version: the archive's version.
        mode: what is asked of it.
        save_mode: its format.
        dtype: what it computes in, as its YAML says.
        labels: names of its classes, by class number; empty where it has none.
        limits: how much one request may hold.
        inputs: JSON schema of what one request asks about.
        results: JSON schema of the answer to one request.
        parameters: JSON schemas of the parameters by name, with this model's defaults.
        explanation: JSON schemas of what `/explanations` takes beside them; empty where the model
            is not explained.
        sample: a body that it answers.
        settings: the YAML's `handler:` section, for what protocols are told there.
        architecture: the checkpoint's model class.
    """

    name: str
    version: str
    mode: str
    save_mode: str
    dtype: str
    labels: Sequence[str]
    limits: Limits
    inputs: Schema
    results: Schema
    parameters: Schema
    explanation: Schema
    sample: Mapping[str, Any]
    settings: HandlerSection = field(repr=False)
    architecture: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what is told to clients; of the settings, only what is named here."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del facts["settings"]
        settings = {name: getattr(self.settings, name) for name in TOLD_SETTINGS}
        return {**facts, **settings, "limits": asdict(self.limits)}
