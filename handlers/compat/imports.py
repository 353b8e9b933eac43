"""Packages that another package imports where it finds them, although it does not need them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
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


def add_name(package: str, name: str) -> None:
    """Make a package importable by another name, too; both are the same modules.

    Another package with that name, in another folder of the module path, is left alone.

    Breaks when modules are found in another way than by `sys.meta_path`.
    """
    sys.meta_path.insert(0, OtherName(package, name))


class OtherName(MetaPathFinder, Loader):
    """Finds the modules of a package by its other name.

    Breaks when the import system sets more than the spec of a module that a loader returns.
    """

    def __init__(self, package: str, name: str) -> None:
        self.package, self.name = package, name
        self.specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.name:
            return None if self._is_another() else ModuleSpec(fullname, self, is_package=True)
        if not fullname.startswith(f"{self.name}."):
            return None
        is_same = sys.modules.get(self.name) is sys.modules.get(self.package)
        return ModuleSpec(fullname, self) if is_same else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.package + spec.name.removeprefix(self.name))
        self.specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set the spec of the other name.
        name = module.__spec__.name if module.__spec__ else ""
        module.__spec__ = self.specs.pop(name)

    def _is_another(self) -> bool:
        """Return whether another package on the module path has the name."""
        if "." in self.name:
            return False
        found = PathFinder.find_spec(self.name)
        places = (found and found.submodule_search_locations) or ()
        own = [Path(each).resolve() for each in sys.modules[self.package].__path__]
        return found is not None and [Path(each).resolve() for each in places] != own
