"""The Python file that `handler.custom` names: where it is, and what it defines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..errors import WrongConfig
from .handler_section import CUSTOM_FOLDER

KEY = "handler.custom"
# The class of Hugging Face's handler.py, and the functions of SageMaker's inference.py.
ENDPOINT_HANDLER = "EndpointHandler"
FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")


def find(directory: Path, name: str) -> Path:
    """Return the file of `handler.custom`: in an archive, where the YAML says, or with the model.

    Args:
        directory: the folder of the model.
        name: the value of the key. A YAML that was read from a file has the path of the file.

    Raises:
        WrongConfig: there is no such file.
    """
    path = Path(name)
    places = [directory / CUSTOM_FOLDER / path.name, directory / path.name]
    places += [path] if path.is_absolute() else [directory / path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise WrongConfig(
            KEY,
            f"is {name}, and there is no such file",
            "give its path, relative to the YAML or to the folder of the model",
        )
    return found


def defines_inference_code(path: Path) -> bool:
    """Return whether a file defines how whole requests are answered; the file is not run."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # The load reports it, with its line.
        return False
    return not {ENDPOINT_HANDLER, *FUNCTIONS}.isdisjoint(_defined_names(tree))


def _defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of classes, functions and imports at the top of a file."""
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
