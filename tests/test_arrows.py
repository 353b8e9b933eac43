"""Which way things point: the order of handlers/, read from its import lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(ROOT.glob("handlers/**/*.py"))
# Files of the family in front of the colon import nothing that begins with what stands behind it.
FORBIDDEN = {
    "handlers": ("scripts", "tests"),
    "handlers/tasks": (
        "handlers.formats.pretrained",
        "handlers.protocols",
        "handlers.bodies",
        "handlers.dialogue",
        "handlers.engine",
        "handlers.accounts",
    ),
    "handlers/formats": ("handlers.tasks", "handlers.protocols", "handlers.engine"),
    "handlers/explainers": (
        "handlers.bodies",
        "handlers.protocols",
        "handlers.dialogue",
        "handlers.tasks",
        "handlers.engine",
    ),
    "handlers/protocols": ("handlers.tasks", "handlers.formats", "handlers.engine", "torch"),
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def begins(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


@pytest.mark.parametrize("family", FORBIDDEN)
def test_nothing_points_backwards(family: str) -> None:
    files = sorted((ROOT / family).glob("**/*.py"))
    assert files
    assert not [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imports(path)
        for prefix in FORBIDDEN[family]
        if begins(name, prefix)
    ]


def test_tasks_see_of_formats_only_their_base() -> None:
    seen = {name for path in (ROOT / "handlers/tasks").glob("*.py") for name in imports(path)}
    formats = {name for name in seen if begins(name, "handlers.formats")}
    assert formats and all(begins(name, "handlers.formats.base") for name in formats)


def test_only_the_bridge_imports_torchserve() -> None:
    users = {path.name for path in FILES for name in imports(path) if begins(name, "ts")}
    assert users == {"transformers_handler.py"}


def test_errors_import_nothing_of_the_house() -> None:
    seen = list(imports(ROOT / "handlers/errors.py"))
    assert seen and not [name for name in seen if begins(name, "handlers")]
