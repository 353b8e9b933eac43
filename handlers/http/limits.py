"""What the bodies of requests and responses may cost: bytes, and values of JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

from ..compat.torchserve import read_config_properties

# TorchServe's own defaults of max_request_size and max_response_size.
TORCHSERVE_BYTES = 6_553_500
MIN_VALUES = 100_000
# A chat or a set of columns has fewer, and an item of a list is one of them.
VALUES_PER_ROW = 1_000


@dataclass(frozen=True)
class BodyLimits:
    """The limits of one request's body and of its response.

    Attributes:
        max_request_bytes: bytes of a body without its compression.
        max_response_bytes: bytes of a response; TorchServe ends a worker that sends more.
        max_values: texts, lists and objects in JSON, or cells of a table; each takes more memory
            than its characters in the body.
    """

    max_request_bytes: int = TORCHSERVE_BYTES
    max_response_bytes: int = TORCHSERVE_BYTES
    max_values: int = MIN_VALUES

    def for_rows(self, max_rows: int) -> Self:
        """Return these limits for a model that takes a number of items in a request."""
        return replace(self, max_values=max(MIN_VALUES, VALUES_PER_ROW * max_rows))

    @classmethod
    def from_properties(cls, text: str, environment: Mapping[str, str]) -> Self:
        """Return the limits that a config.properties sets.

        Args:
            environment: the variables that take precedence over it, where it enables that.
        """
        settings = dict(re.findall(r"^[ \t]*(\w+)[ \t]*[=:][ \t]*(\S*)", text, re.MULTILINE))
        if settings.get("enable_envvars_config") == "true":
            prefixed = {name for name in environment if name.startswith("TS_")}
            settings |= {name[3:].lower(): environment[name] for name in prefixed}
        names = {
            "max_request_bytes": "max_request_size",
            "max_response_bytes": "max_response_size",
        }
        given = {field: settings.get(name, "") for field, name in names.items()}
        return cls(**{field: int(value) for field, value in given.items() if value.isdecimal()})


DEFAULTS = BodyLimits()


@cache
def server_limits() -> BodyLimits:
    """Return the limits of the TorchServe that started this worker; elsewhere its defaults."""
    text = read_config_properties()
    return DEFAULTS if text is None else BodyLimits.from_properties(text, os.environ)
