"""The Accept header: the content types that a client prefers."""

from __future__ import annotations

from collections.abc import Collection


def parse_accept(accept: str) -> list[tuple[str, float]]:
    """Return each type of the header with its quality, from 0 to 1, in the order of the header."""
    return [_parse_entry(entry) for entry in accept.lower().split(",")]


def preferred(accept: str, known: Collection[str]) -> str:
    """Return the known type of the highest quality, of equals the first; empty if there is none."""
    found = [
        (kind, quality) for kind, quality in parse_accept(accept) if kind in known and quality > 0
    ]
    return max(found, key=lambda entry: entry[1], default=("", 0.0))[0]


def _parse_entry(entry: str) -> tuple[str, float]:
    kind, *options = (part.strip() for part in entry.split(";"))
    quality = next((option[2:] for option in options if option.startswith("q=")), "1")
    try:
        return kind, float(quality)
    except ValueError:
        return kind, 1.0
