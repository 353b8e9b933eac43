"""What each Python process of vLLM runs when it starts: it prepares the import of torchvision.

torchvision's wheels on package indexes are built for CUDA. With a CPU build of torch its compiled
library does not load, and the import fails at an operator that the library would have declared.
The image processors of transformers import torchvision, and use none of its operators. vLLM
starts processes that import a model before any of their code is its own.

Python runs one module of this name. Another one of the environment runs behind it.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

NAME = "torchvision"
# The file of its compiled library, and the operators for which its Python code registers a
# function in any case.
LIBRARY = "_C.so"
OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DeclareOperators:
    """Declares the operators of torchvision before its import, if its library does not load.

    Breaks when torchvision names its library otherwise, or registers functions for other operators.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Declare the operators, and leave the import to other finders."""
        if name != NAME:
            return None
        sys.meta_path.remove(DeclareOperators)
        found = PathFinder.find_spec(name)
        if found and found.submodule_search_locations:
            _declare(f"{found.submodule_search_locations[0]}/{LIBRARY}")
        return None


def _declare(library: str) -> None:
    import torch  # noqa: PLC0415 - processes that do not import torchvision may not need it

    try:
        torch.ops.load_library(library)
    except OSError:
        for operator in OPERATORS:
            torch.library.define(f"{NAME}::{operator}", SCHEMA)


def _run_hidden() -> None:
    """Run the `sitecustomize` that Python would run without this file, if there is one."""
    folder = Path(__file__).resolve().parent
    others = [each for each in sys.path if Path(each).resolve() != folder]
    found = PathFinder.find_spec("sitecustomize", others)
    if found and found.loader:
        found.loader.exec_module(module_from_spec(found))


sys.meta_path.insert(0, DeclareOperators)
_run_hidden()
