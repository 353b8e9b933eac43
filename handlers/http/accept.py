"""An Accept header: which types a client wishes for, and how much."""

from __future__ import annotations


def parse_accept(accept: str) -> list[tuple[str, float]]:
    """Return each type of the header with its quality, from 0 to 1, in the order of the header."""
    return [_wish(entry) for entry in accept.lower().split(",")]


def _wish(entry: str) -> tuple[str, float]:
    kind, *options = (part.strip() for part in entry.split(";"))
    quality = next((option[2:] for option in options if option.startswith("q=")), "1")
    try:
        return kind, float(quality)
    except ValueError:
        return kind, 1.0
