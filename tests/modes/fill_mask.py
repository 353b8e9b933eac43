"""The test cases of fill-mask."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases


def with_mask(text: Any) -> Any:
    """Return a text of the same length with a mask."""
    return f"{text[:6]}[MASK]{text[12:]}" if isinstance(text, str) and len(text) >= 12 else text


CASES = ModeCases(
    inputs=[with_mask(FINE), with_mask(ODD), with_mask(LONG), "Ada [MASK]", "[MASK] in [MASK]."],
    parameters=[{}, {"top_k": 1}, {"targets": ["paris", "london"]}],
    brief={"top_k": 2},
    with_text=with_mask,
    rows=[with_mask(FINE), with_mask(ODD), "Ada [MASK]"],
    accepted=[("targets", "x" * 100)],
)
