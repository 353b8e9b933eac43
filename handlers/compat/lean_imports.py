"""Stand-ins for packages that other packages import at once, and the kit uses late or never.

A fresh process would spend a third of its start on them: transformers imports torch's compiler for
two decorators and SciPy for the losses of training, and captum imports matplotlib for its plots.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"
# What each module that gets a stand-in takes at its import.
NAMES: Mapping[str, tuple[str, ...]] = {
    COMPILER: (),
    f"{COMPILER}._trace_wrapped_higher_order_op": ("TransformGetItemToIndex",),
    "scipy.optimize": ("linear_sum_assignment",),
    "matplotlib": (),
    "matplotlib.axes": ("Axes",),
    "matplotlib.cm": (),
    "matplotlib.collections": ("LineCollection",),
    "matplotlib.colors": ("Colormap", "LinearSegmentedColormap", "Normalize"),
    "matplotlib.figure": ("Figure",),
    "matplotlib.image": ("AxesImage",),
    "matplotlib.pyplot": (),
    "mpl_toolkits.axes_grid1": ("make_axes_locatable",),
}
# The modules that import them, and what they get a stand-in for.
IMPORTERS: Mapping[str, tuple[str, ...]] = {
    "captum.attr._core.llm_attr": ("matplotlib",),
    "captum.attr._utils.visualization": ("matplotlib", "mpl_toolkits"),
    "torch.nn.attention.varlen": (COMPILER,),
    "transformers.integrations.flash_paged": (COMPILER,),
    "transformers.integrations.flex_attention": (COMPILER,),
    "transformers.loss.loss_deformable_detr": ("scipy",),
    "transformers.loss.loss_for_object_detection": ("scipy",),
    "transformers.loss.loss_grounding_dino": ("scipy",),
    "transformers.loss.loss_lw_detr": ("scipy",),
    "transformers.loss.loss_rt_detr": ("scipy",),
    "transformers.masking_utils": (COMPILER,),
    "transformers.modeling_utils": (COMPILER,),
}


class LateImports(MetaPathFinder):
    """Imports the modules of `IMPORTERS` with stand-ins.

    Breaks when one of them takes another name of a stand-in at its import, whose package is then
    imported as it would be without this; when a function of `torch.compiler` does more than to call
    the one of `torch._dynamo`; or when the compiler knows functions that it is
    disabled for by other attributes.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in IMPORTERS and fullname not in NAMES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._own
        with stand_ins(*IMPORTERS.get(name, ())):
            self._own.exec_module(module)
        if name in NAMES:
            _replace_late(module)


def import_late() -> None:
    """Have this process import the modules of `IMPORTERS` with stand-ins, from now on.

    Breaks when :class:`LateImports` does.
    """
    if not any(isinstance(each, LateImports) for each in sys.meta_path):
        sys.meta_path.insert(0, LateImports())


@contextmanager
def stand_ins(*packages: str) -> Iterator[None]:
    """Give imports within the block stand-ins for packages that are not imported already.

    Breaks when modules are found in another way than by `sys.modules`.
    """
    added = [
        StandIn(name)
        for name in NAMES
        if any(f"{name}.".startswith(f"{each}.") for each in packages) and name not in sys.modules
    ]
    sys.modules.update({each.__name__: each for each in added})
    try:
        yield
    finally:
        _remove(added)


def without_compiler() -> AbstractContextManager[None]:
    """Build models on the meta device within the block without torch's compiler.

    torch imports it to keep it from functions of that device.

    Breaks when torch takes something else of it there, for which it is then imported.
    """
    return stand_ins(COMPILER)


class StandIn(ModuleType):
    """A module that is imported when something else than `NAMES` is taken from it.

    Breaks when Python asks a module for other names than the ones of missing attributes.
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            full = f"{self.__name__}.{name}"
            if isinstance(part := sys.modules.get(full), StandIn):
                return part
            if self.__name__ == COMPILER and name in _DECORATORS:
                return _DECORATORS[name]
            if name in NAMES[self.__name__]:
                return _late(self.__name__, name)
            if name == "__path__":
                return _path_of(self.__name__)
            if name.startswith("__"):
                raise AttributeError(name)
        return getattr(_real(self.__name__), name)


def _real(name: str) -> ModuleType:
    package = name.partition(".")[0]
    found = [each for each in sys.modules.values() if isinstance(each, StandIn)]
    _remove([each for each in found if each.__name__.partition(".")[0] == package])
    return import_module(name)


def _remove(modules: Sequence[ModuleType]) -> None:
    for each in modules:
        if sys.modules.get(each.__name__) is each:
            del sys.modules[each.__name__]


def _path_of(name: str) -> list[str]:
    """Return the folders of a package; a module has none.

    Raises:
        AttributeError: it is a module.
    """
    parent = name.rpartition(".")[0]
    spec = PathFinder.find_spec(name, import_module(parent).__path__ if parent else None)
    if spec is None or spec.submodule_search_locations is None:
        raise AttributeError("__path__")
    return list(spec.submodule_search_locations)


_late_names: dict[type, str] = {}
_marked: list[tuple[str, Callable[..., Any]]] = []


def _late(module: str, name: str) -> type:
    """Return what imports a class or a function when it is called."""

    def call(_class: type, *arguments: Any, **options: Any) -> Any:
        return getattr(_real(module), name)(*arguments, **options)

    late = type(name, (), {"__new__": call, "__module__": module})
    _late_names[late] = module
    return late


def _replace_late(module: ModuleType) -> None:
    """Give the importers of a module what it has, so that the compiler traces it as it is."""
    while module.__name__ == COMPILER and _marked:
        mark, function = _marked.pop()
        getattr(module, mark)(function)
    for importer in map(sys.modules.get, IMPORTERS):
        for name, value in list(vars(importer).items()) if importer else ():
            if isinstance(value, type) and _late_names.get(value) == module.__name__:
                setattr(importer, name, getattr(module, value.__name__))


def _disable(
    function: Callable[..., Any] | None = None, recursive: bool = True, **options: Any
) -> Callable[..., Any]:
    """Do what `torch._dynamo.disable` does as soon as there is a compiler in this process."""
    if function is None:
        return partial(_disable, recursive=recursive, **options)
    disabled: list[Callable[..., Any]] = []

    @wraps(function)
    def run(*arguments: Any, **keywords: Any) -> Any:
        if not disabled:
            compiler = sys.modules.get(COMPILER)
            if compiler is None or isinstance(compiler, StandIn):
                return function(*arguments, **keywords)
            disabled.append(compiler.disable(function, recursive, **options))
        return disabled[0](*arguments, **keywords)

    marks = {"_torchdynamo_disable": True, "_torchdynamo_disable_msg": options.get("reason")}
    vars(run).update(marks, _torchdynamo_disable_recursive=recursive)
    return run


def _mark(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the compiler about a function when there is one in this process."""
    _marked.append((name, function))
    return function


_DECORATORS: Mapping[str, Callable[..., Any]] = {
    "disable": _disable,
    **{each: partial(_mark, each) for each in ("allow_in_graph", "disallow_in_graph")},
}
