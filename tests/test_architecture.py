"""The layers of `handlers/`: no package imports one above it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HANDLERS = ROOT / "handlers"
FILES = sorted(HANDLERS.glob("**/*.py"))
# From top to bottom. Packages that share a layer do not import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("transformers_handler",),
    ("torchserve",),
    ("dispatcher",),
    ("worker_start",),
    ("inference_code",),
    ("protocols",),
    ("engine",),
    ("batch",),
    ("formats",),
    ("export",),
    ("explainers",),
    ("tasks",),
    ("generation",),
    ("model",),
    ("checkpoints",),
    ("http",),
    ("process",),
    ("types",),
    ("batching",),
    ("media",),
    ("config",),
    ("telemetry",),
    ("registry",),
    ("errors",),
    ("compat",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# What a wire format knows of a model is in its `ModelInfo`; only the dispatcher knows the engine.
WIRE_FORMATS = sorted((HANDLERS / "protocols").rglob("*.py"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return every imported name: in functions, in TYPE_CHECKING blocks and by name, too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _package(path, node.level) if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            yield from _literal_start(node.args[0])


def _package(path: Path, level: int) -> tuple[str, ...]:
    """Return the package from which a relative import of a file starts."""
    parts = path.relative_to(ROOT).parts
    return parts[: len(parts) - level]


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _literal_start(argument: ast.expr) -> Iterator[str]:
    """Yield `handlers.tasks` for `f"handlers.tasks.{mode}"`."""
    first = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
    if isinstance(first, ast.Constant):
        yield str(first.value).rstrip(".")


def begins(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def package_of(path: Path) -> str:
    return path.relative_to(HANDLERS).with_suffix("").parts[0]


def test_every_file_has_a_layer() -> None:
    assert {package_of(path) for path in FILES} - {"__init__"} == set(LEVEL)


def test_an_import_points_down() -> None:
    upward = []
    for path in FILES:
        own = package_of(path)
        used = {
            name.split(".")[1] for name in imports(path) if begins(name, "handlers") and "." in name
        }
        upward += [
            f"{path.relative_to(ROOT)} imports {name}, which is above it"
            for name in sorted(used - {own, "__version__"})
            if LEVEL[name] <= LEVEL.get(own, LEVEL["errors"])
        ]
    assert not upward


def test_modules_of_the_package_import_each_other_relatively() -> None:
    """The package has one name in an archive and another one in an environment."""
    entry = HANDLERS / "transformers_handler.py"  # TorchServe imports it without its package.
    assert not [
        f"{path.relative_to(ROOT)} imports {node.module}"
        for path in FILES
        if path != entry
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and begins((node.module or "").removeprefix("hf_serve."), "handlers")
        and not node.level
    ]


def test_handlers_import_only_handlers_of_this_repository() -> None:
    assert not imported_from(FILES, ("hf_serve", "hosts", "scripts", "tests", "benchmarks"))


def test_a_wire_format_knows_a_model_by_its_model_info_alone() -> None:
    above = ("engine", "formats", "export", "explainers", "tasks", "checkpoints")
    assert WIRE_FORMATS
    assert not imported_from(WIRE_FORMATS, [*(f"handlers.{name}" for name in above), "torch"])


def test_only_the_entry_point_and_its_package_import_torchserve() -> None:
    users = {package_of(path) for path in FILES for name in imports(path) if begins(name, "ts")}
    assert users == {"transformers_handler", "torchserve", "compat"}


def test_the_configuration_imports_no_torch() -> None:
    light = ("__init__", "config", "registry", "errors")
    files = [path for path in FILES if package_of(path) in light]
    assert not imported_from(files, ("torch", "transformers", "numpy"))


def test_no_package_has_an_import_cycle() -> None:
    """Within a package, modules import each other in one direction, too."""
    cycles = []
    for package in sorted(LEVEL):
        graph = {module: set(inner) for module, inner in _modules(package).items()}
        while leaves := [module for module, used in graph.items() if not used]:
            graph = {
                module: used - set(leaves) for module, used in graph.items() if module not in leaves
            }
        if graph:
            cycles.append(f"{package}: {', '.join(sorted(graph))} import each other")
    assert not cycles


def imported_from(paths: Iterable[Path], prefixes: Iterable[str]) -> list[str]:
    """Describe each import of a module that is, or is inside, one of the given."""
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imports(path)
        if any(begins(name, prefix) for prefix in prefixes)
    ]


def _modules(package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of its modules imports."""
    files = [path for path in FILES if package_of(path) == package]
    names = {_module(path): path for path in files}
    return {
        module: {
            known
            for name in imports(path)
            for known in names
            if known != module and (name == known or name.rpartition(".")[0] == known)
        }
        for module, path in names.items()
    }


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
