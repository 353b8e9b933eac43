"""Private and undocumented parts of other packages are used in `compat` alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TREES = ("handlers", "hosts", "scripts")
COMPAT = tuple(ROOT / tree / "compat" for tree in ("handlers", "hosts"))
SOURCES = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))
OUTSIDE = [path for path in SOURCES if not any(map(path.is_relative_to, COMPAT))]
INSIDE = [path for path in SOURCES if path not in OUTSIDE]
OWN = {*TREES, "hf_serve", "__future__"}
# What Python documents although its name begins with an underscore.
DOCUMENTED = {"_exit", "_current_frames", "_asdict", "_fields", "_make", "_replace"}
# Settings that torch documents as attributes to assign to.
SETTINGS = ("torch.backends.",)
# The modules of transformers that its documentation imports from.
PUBLIC = {
    *("transformers", "transformers.distributed", "transformers.generation"),
    *("transformers.utils", "transformers.image_processing_utils"),
    "transformers.modeling_outputs",
}
IMPORTERS = ("import_module", "require", "require_package")
TESTS_OF_TEXT = ("startswith", "endswith", "search", "match", "fullmatch", "find")
PROCESS_LOOKS = ("cmdline", "parents")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_foreign(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in OWN and top not in sys.stdlib_module_names


@dataclass
class Source:
    """A file, and what it imports of other packages."""

    text: str
    path: str = "example.py"
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def foreign(self) -> dict[str, str]:
        """The full names of what other packages have, by the names in this file."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and is_foreign(node.module or "")
            ):
                found |= {
                    alias.asname or alias.name: f"{node.module}.{alias.name}"
                    for alias in node.names
                }
            elif isinstance(node, ast.Import):
                named = (alias for alias in node.names if is_foreign(alias.name))
                found |= {
                    alias.asname or alias.name.partition(".")[0]: alias.name for alias in named
                }
            elif isinstance(node, ast.Assign) and any(map(_is_import_call, ast.walk(node.value))):
                targets = [each for target in node.targets for each in _parts(target)]
                found |= {each.id: "imported" for each in targets if isinstance(each, ast.Name)}
        return found

    @cached_property
    def own_names(self) -> set[str]:
        """The private names that the classes and functions of this file have."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found |= {node.attr} if _root(node) in ("self", "cls") else set()
        return found

    @cached_property
    def error_names(self) -> set[str]:
        """The names of errors, and of texts that are made of their messages."""
        found = {node.name for node in self.nodes if isinstance(node, ast.ExceptHandler)} - {None}
        for node in self.nodes:
            if isinstance(node, ast.arg) and node.annotation is not None:
                kind = ast.unparse(node.annotation)
                if kind.endswith(("Exception", "Error")):
                    found.add(node.arg)
        for node in self.nodes:
            if isinstance(node, ast.Assign) and _is_message(node.value, found):
                found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        return {str(name) for name in found}

    def describe(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple) else [target]


def _called(node: ast.AST) -> str:
    """Return the last name of a called function."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def _is_import_call(node: ast.AST) -> bool:
    return _called(node) in IMPORTERS


def _is_message(node: ast.expr, errors: set[Any]) -> bool:
    """Return whether an expression is the message of an error, or made of it."""
    return any(
        _called(each) == "str" and any(_root(argument) in errors for argument in each.args)
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
    )


def private_imports(source: Source) -> Iterator[ast.AST]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and not node.level and is_foreign(node.module or ""):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if is_foreign(alias.name)]
        else:
            continue
        if any(is_private(part) for name in names for part in name.split(".")):
            yield node


def undocumented_imports(source: Source) -> Iterator[ast.AST]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        if any(name.startswith("transformers.") and name not in PUBLIC for name in names):
            yield node


def private_attributes(source: Source) -> Iterator[ast.AST]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            own = _root(node.value) in ("self", "cls") and isinstance(node.value, ast.Name)
            if not own and node.attr not in source.own_names | DOCUMENTED:
                yield node
        elif _called(node) in ("getattr", "hasattr") and isinstance(node, ast.Call):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield node


def private_arguments(source: Source) -> Iterator[ast.AST]:
    for node in source.nodes:
        if isinstance(node, ast.keyword) and node.arg and is_private(node.arg):
            yield node


def private_overrides(source: Source) -> Iterator[ast.AST]:
    """Find the private methods of classes of other packages that own classes replace."""
    for node in source.nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        names = (source.foreign.get(_root(base), "") for base in node.bases)
        bases = [base for name in names if (base := _imported(name)) is not None]
        for each in node.body:
            name = getattr(each, "name", "")
            if is_private(name) and any(hasattr(base, name) for base in bases):
                yield each


def _imported(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, ValueError, AttributeError):  # It is not in this environment.
        return None


def foreign_writes(source: Source) -> Iterator[ast.AST]:
    for node in source.nodes:
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [each for target in node.targets for each in _parts(target)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif _called(node) in ("setattr", "delattr") and isinstance(node, ast.Call):
            targets = [ast.Attribute(node.args[0], "", ast.Store())]
        else:
            continue
        for target in targets:
            is_part = isinstance(target, ast.Attribute | ast.Subscript)
            is_setting = ast.unparse(target).startswith(SETTINGS)
            if is_part and _root(target) in source.foreign and not is_setting:
                yield node


def replaced_modules(source: Source) -> Iterator[ast.AST]:
    """Find modules that are put in the place of others; a program may set its own `__main__`."""
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                text = ast.unparse(target)
                if text.startswith("sys.modules[") and "__main__" not in text:
                    yield node
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "sys.modules.update",
            "sys.modules.setdefault",
        ):
            yield node


def read_messages(source: Source) -> Iterator[ast.AST]:
    """Find conditions on the message of an error."""

    def is_message(node: ast.expr) -> bool:
        return _root(node) in source.error_names or _is_message(node, source.error_names)

    for node in source.nodes:
        if isinstance(node, ast.Compare):
            contains = any(isinstance(each, ast.In | ast.NotIn) for each in node.ops)
            if contains and any(map(is_message, node.comparators)):
                yield node
        elif isinstance(node, ast.Call) and _called(node) in TESTS_OF_TEXT:
            on = node.func.value if isinstance(node.func, ast.Attribute) else None
            if any(_is_message(each, source.error_names) for each in [on, *node.args] if each):
                yield node


def process_looks(source: Source) -> Iterator[ast.AST]:
    """Find what reads the command lines of other processes."""
    for node in source.nodes:
        if _called(node) in PROCESS_LOOKS and not getattr(node, "args", None):
            yield node


@cache
def _outside() -> list[Source]:
    return [
        Source(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))) for path in OUTSIDE
    ]


RULES: dict[Callable[[Source], Iterator[ast.AST]], tuple[list[str], list[str]]] = {
    private_imports: (
        ["from torch._dynamo.exc import UserError", "from x import _a", "import x._a"],
        [
            "from __future__ import annotations",
            "from hf_serve.handlers.tasks.bases.text import TextTask",
        ],
    ),
    undocumented_imports: (
        [
            "from transformers.models.auto.modeling_auto import A",
            "import transformers.integrations",
        ],
        ["from transformers import A", "from transformers.utils import logging"],
    ),
    private_attributes: (
        ["model._sample()", "x.config._attn = 1", "getattr(x, '_a')", "super()._a()", "self.a._b"],
        ["self._a", "os._exit(1)", "row._replace(a=1)", "class A:\n  _b: int\n\ndef f(a): a._b"],
    ),
    private_arguments: (["ray.init(_temp_dir='/tmp')"], ["ray.init(temp_dir='/tmp')"]),
    private_overrides: (
        ["from numpy.random import Generator\nclass A(Generator):\n  def _poisson_lam_max(): 1"],
        ["from numpy.random import Generator\nclass A(Generator):\n  def _b(): 1"],
    ),
    foreign_writes: (
        [
            "import torch\ntorch.cuda.a = 1",
            "import torch\nsetattr(torch, name, 1)",
            "from vllm import a\na.b.c = 1",
            "from kserve import app\napp.routes[:0] = []",
            "a = import_module('optimum').A\nb, a.C = a.C, None",
        ],
        ["import torch\ntorch.backends.cudnn.a = 1", "import os\nos.environ['a'] = 'b'", "a.b = 1"],
    ),
    replaced_modules: (
        ["sys.modules['a'] = None", "sys.modules.update(a)"],
        ["del sys.modules['a']", "sys.modules['__main__'] = main"],
    ),
    read_messages: (
        [
            "try: pass\nexcept E as error:\n  'memory' in str(error)",
            "def f(error: Exception):\n  text = str(error).lower()\n  return 'memory' in text",
            "def f(error: ValueError): return str(error).startswith('a')",
            "def f(error: OSError): return re.search('a', str(error))",
        ],
        ["'a' in str(b)", "def f(error: OSError): return error.errno not in (1, 2)"],
    ),
    process_looks: (["process.cmdline()", "psutil.Process().parents()"], ["path.parents[1]"]),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_only_compat_uses_what_other_packages_do_not_promise(
    rule: Callable[[Source], Iterator[ast.AST]],
) -> None:
    assert not [source.describe(node) for source in _outside() for node in rule(source)]


@pytest.mark.parametrize(
    ("rule", "text"),
    [(rule, text) for rule, (found, _) in RULES.items() for text in found],
)
def test_a_rule_finds_what_it_is_for(
    rule: Callable[[Source], Iterator[ast.AST]], text: str
) -> None:
    assert list(rule(Source(dedent(text))))


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, (_, passed) in RULES.items() for text in passed]
)
def test_a_rule_passes_other_code(rule: Callable[[Source], Iterator[ast.AST]], text: str) -> None:
    assert not list(rule(Source(dedent(text))))


@pytest.mark.parametrize("path", INSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_in_compat_says_when_it_breaks(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not is_private(node.name)
    ]
    silent = [
        node.name
        for node in public
        if "Breaks when" not in (ast.get_docstring(node) or "")
        and not any(
            "Breaks when" in (ast.get_docstring(each) or "")
            for each in ast.walk(node)
            if isinstance(each, ast.FunctionDef)
        )
    ]
    assert not silent
