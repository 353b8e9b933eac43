from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hf_serve.handlers.compat import lean_imports
from hf_serve.handlers.compat.lean_imports import LateImports, StandIn, stand_ins


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package `slow_package` with a class, and a module `importer` that imports it."""
    (tmp_path / "slow_package").mkdir()
    for name in ("__init__", "part"):
        (tmp_path / "slow_package" / f"{name}.py").write_text("class Thing: ...\nother = 5\n")
    names = {"slow_package": (), "slow_package.part": ("Thing",)}
    monkeypatch.setattr(lean_imports, "NAMES", names)
    monkeypatch.setattr(lean_imports, "IMPORTERS", {"importer": ("slow_package",)})
    monkeypatch.setattr(sys, "meta_path", [LateImports(), *sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("importer", *names):
        monkeypatch.delitem(sys.modules, name, raising=False)
    source = "import slow_package.part as part\nfrom slow_package.part import Thing\n"
    (tmp_path / "importer.py").write_text(source)
    return "slow_package"


def test_a_package_is_imported_when_it_is_used(package: str) -> None:
    importer = import_module("importer")
    assert package not in sys.modules

    thing = importer.Thing()

    part = sys.modules[f"{package}.part"]
    assert type(thing) is part.Thing is importer.Thing and importer.part.other == 5


def test_another_name_than_the_known_ones_imports_the_package_at_once(
    package: str, tmp_path: Path
) -> None:
    with (tmp_path / "importer.py").open("a") as source:
        source.write("from slow_package.part import other\n")

    assert import_module("importer").other == 5
    assert not isinstance(sys.modules[f"{package}.part"], StandIn)


def test_a_package_that_is_imported_already_has_no_stand_in(package: str) -> None:
    own = import_module(f"{package}.part")
    with stand_ins(package):
        assert sys.modules[f"{package}.part"] is own
    assert sys.modules[f"{package}.part"] is own


@pytest.mark.nightly
def test_the_compiler_knows_what_was_marked_before_its_import() -> None:
    program = """
import sys
import hf_serve.handlers
from hf_serve.handlers.compat.transformers import masking_utils
from transformers import PreTrainedModel
from transformers.integrations.flash_paged import paged_attention_forward
import captum.attr
heavy = {"torch._dynamo", "scipy.optimize", "matplotlib", "sklearn"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()

import torch._dynamo
from torch._dynamo import trace_rules
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

assert masking_utils.TransformGetItemToIndex is TransformGetItemToIndex
assert trace_rules.is_callable_allowed(PreTrainedModel.can_record_outputs.fget)

seen = []
@torch.compiler.disable
def real(x): seen.append(torch.compiler.is_compiling()); return x + 1
from hf_serve.handlers.compat.lean_imports import _disable
late = _disable(lambda x: seen.append(torch.compiler.is_compiling()) or x + 1)
for each in (real, late):
    compiled = torch.compile(lambda x: each(x * 2) * 3, backend="eager")
    assert compiled(torch.ones(1)).item() == 9
assert seen == [False, False], seen
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
