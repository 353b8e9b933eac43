"""The Python file that `handler.custom` names: where it is, and what it defines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import WrongConfig
from .handler_section import CUSTOM_FOLDER

KEY = "handler.custom"
# The class of Hugging Face's handler.py, and the functions of SageMaker's inference.py.
ENDPOINT_HANDLER = "EndpointHandler"
FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")
# Parts of statements that define names.
PARTS = (ast.stmt, ast.excepthandler, ast.match_case, ast.Name, ast.Tuple)


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
    # The load reports it, with its line.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return not {ENDPOINT_HANDLER, *FUNCTIONS}.isdisjoint(_defined_names(tree.body))


def _defined_names(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that statements define, also those below a condition or in a `try`."""
    # Each `elif` is in the one before it, deeper than Python calls functions.
    waiting = [*statements]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:
            waiting += (each for each in ast.iter_child_nodes(node) if isinstance(each, PARTS))
