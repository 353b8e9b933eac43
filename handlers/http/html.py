"""HTML pages for browsers: self-contained, without scripts and external resources."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .request import parse_accept

HTML = "text/html; charset=utf-8"


def templates(folder: Path) -> Environment:
    """Return the templates of a folder, which escape their input and may extend `page.html.j2`."""
    return Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def prefers_page(accept: str) -> bool:
    """Return whether an Accept header prefers HTML to JSON, as browsers do."""
    qualities = dict(parse_accept(accept))
    others = max(qualities.get("application/json", 0.0), qualities.get("*/*", 0.0))
    return qualities.get("text/html", 0.0) > others
