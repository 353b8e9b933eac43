"""Packages that another package imports where it finds them, although it does not need them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from logging import ERROR, getLogger
from pathlib import Path
from types import ModuleType

# Packages that fail if another package finds them: pipelines of diffusers need a newer transformers
# than optimum-intel accepts.
INCOMPATIBLE: Mapping[str, tuple[str, ...]] = {"optimum.intel.openvino": ("diffusers",)}
# The modules in which optimum keeps which packages it found.
FINDINGS = ("optimum.utils.import_utils", "optimum.intel.utils.import_utils")


@contextmanager
def hide_packages(
    *names: str, silence: str | None = None, even_imported: bool = False
) -> Iterator[None]:
    """Make modules appear as not installed to imports within the block.

    Breaks when a package is found in another way than by Python's import system.

    Args:
        silence: a logger that is limited to errors within the block.
        even_imported: whether modules that are imported already are hidden, too.
    """
    imported = {name: sys.modules[name] for name in names if name in sys.modules}
    hidden = [name for name in names if even_imported or name not in imported]
    logger = getLogger(silence) if silence else None
    level = logger.level if logger else 0
    if logger:
        logger.setLevel(ERROR)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        yield
    finally:
        if logger:
            logger.setLevel(level)
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(imported)


@contextmanager
def hide_incompatible(package: str) -> Iterator[None]:
    """Import a package within the block without the packages that it fails with.

    optimum looks for diffusers once, when its first part is imported. If that was before the block,
    it is told here that there is none.

    Breaks when the package fails with another one that is installed, or optimum keeps what it
    found under another name.
    """
    hidden = INCOMPATIBLE.get(package, ())
    with hide_packages(*hidden, even_imported=True):
        for module in map(sys.modules.get, FINDINGS):
            for name in hidden if module else ():
                setattr(module, f"_{name}_available", False)
        yield


def without_openvino_backend() -> AbstractContextManager[None]:
    """Import TorchServe's base handler within the block without OpenVINO's compiler backend.

    The base handler imports the backend if OpenVINO is installed, and with it the whole compiler,
    which adds 5 seconds to every start. torch finds the backend without that import.

    Breaks when the base handler imports the backend in another way.
    """
    return hide_packages("openvino.torch", silence="ts.torch_handler.base_handler")


def without_scikit_learn() -> AbstractContextManager[None]:
    """Import transformers within the block without scikit-learn and SciPy, which takes 1.5 seconds.

    transformers imports them, if installed, for assisted generation.

    Breaks when transformers needs scikit-learn for what the kit does, or imports it later.
    """
    return hide_packages("sklearn", silence="transformers")


def without_bitsandbytes() -> AbstractContextManager[None]:
    """Import peft within the block without bitsandbytes, which takes 2 of its 2.7 seconds.

    A model that needs bitsandbytes has imported it before.

    Breaks when peft imports bitsandbytes later.
    """
    return hide_packages("bitsandbytes", silence="peft")


def run_file(path: Path, name: str) -> ModuleType:
    """Run a Python file as a module of a name, under which its classes find their module.

    Breaks when modules are found in another way than by `sys.modules`.

    Raises:
        Exception: what the file raises.
    """
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
