"""The tables of families, and what other distributions add to them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.handler_section import HandlerSection, modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import ConfigError
from hf_serve.handlers.registry import (
    EXPLAINERS,
    EXPLANATION_TARGETS,
    FORMATS,
    PROTOCOLS,
    TASKS,
    Registry,
)
from hf_serve.handlers.types.request import Request

HANDLERS = Path(__file__).resolve().parents[2] / "handlers"
FAMILIES = {
    "tasks": (TASKS, "Task"),
    "formats": (FORMATS, "Format"),
    "explainers": (EXPLAINERS, "Explainer"),
    "explainers/targets": (EXPLANATION_TARGETS, "ExplanationTarget"),
    "protocols": (PROTOCOLS, "Protocol"),
}
MEMBERS = """
from hf_serve.handlers.explainers.feature_ablation import Explainer as FeatureAblation
from hf_serve.handlers.explainers.targets.text_labels import ClassTarget as ExplanationTarget
from hf_serve.handlers.tasks.sequence_classification import Task as SequenceClassification


class Task(SequenceClassification):
    def decode(self, query, rows, outputs):
        return {"tokens": len(rows[0])}


class Explainer(FeatureAblation):
    pass
"""
ENTRY_POINTS = """
[transformers_on_torchserve.tasks]
token_count = extension.members:Task

[transformers_on_torchserve.explanation_targets]
token_count = extension.members:ExplanationTarget

[transformers_on_torchserve.explainers]
other_ablation = extension.members:Explainer
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the entry points of an installed distribution, with a package `extension`."""
    package, metadata = tmp_path / "extension", tmp_path / "extension-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").touch()
    (package / "members.py").write_text(MEMBERS, encoding="utf-8")
    (metadata / "METADATA").write_text("Name: extension\nVersion: 1.0\n", encoding="utf-8")
    entry_points = metadata / "entry_points.txt"
    entry_points.write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield entry_points
    for name in [name for name in sys.modules if name.partition(".")[0] == "extension"]:
        monkeypatch.delitem(sys.modules, name)
    _forget()


def _forget() -> None:
    for registry, _ in FAMILIES.values():
        registry.__dict__.pop("added", None)


@pytest.mark.parametrize("folder", FAMILIES)
def test_a_table_names_each_file_of_its_folder_once(folder: str) -> None:
    registry, attribute = FAMILIES[folder]
    root = HANDLERS / folder
    found = set()
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.ClassDef) and node.name == attribute for node in tree.body):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found.add(name.removesuffix(".__init__"))
    places = {name: place.partition(":") for name, place in registry.table.items()}
    assert found == {name for name, (_, _, member) in places.items() if member == attribute}
    assert all(place[0].endswith(f".{name}") for name, place in places.items() if name in found)


@pytest.mark.parametrize("folder", FAMILIES)
def test_each_name_of_a_table_is_importable(folder: str) -> None:
    registry, _ = FAMILIES[folder]
    members = [registry.load(name) for name in registry.table]
    names = [place.partition(":")[2] for place in registry.table.values()]
    assert [member.__name__ for member in members] == names
    assert len(set(members)) == len(members)


def test_no_entry_point_is_read_for_a_name_of_the_table() -> None:
    registry = Registry("tasks", "tasks", "Task", ["fill_mask"])
    assert "fill_mask" in registry
    assert registry.load("fill_mask").auto_class == "AutoModelForMaskedLM"
    assert "added" not in vars(registry)


def test_a_task_and_a_method_of_another_distribution_answer(
    distribution: Path, checkpoint: Callable[..., Path]
) -> None:
    handler = HandlerSection(mode="token_count", save_mode="pretrained")
    engine = Engine.load(checkpoint("sequence_classification"), ModelConfig(handler=handler))
    counted: Any
    explanation: Any
    (counted,) = engine.predict([Request("Ada sings.")])
    assert counted["tokens"] > 3
    request = Request("Ada sings.", {"method": "other_ablation"})
    (explanation,) = engine.explain([request])
    assert explanation["method"] == "other_ablation"
    assert "token_count" in modes()


def test_an_entry_point_that_repeats_a_name_is_refused(distribution: Path) -> None:
    distribution.write_text(
        "[transformers_on_torchserve.tasks]\nfill_mask = extension.members:Task\n"
    )
    with pytest.raises(ConfigError, match=r"tasks fill_mask = .*, of extension, repeats a name"):
        modes()


def test_an_entry_point_that_does_not_import_is_refused(distribution: Path) -> None:
    distribution.write_text("[transformers_on_torchserve.tasks]\ngone = extension.gone:Task\n")
    assert "gone" in TASKS
    with pytest.raises(ConfigError, match=r"tasks gone = .*, of extension, does not import"):
        TASKS.load("gone")
