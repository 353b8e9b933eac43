"""Archives in a notebook: the page of the documentation, and what a cell shows."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hf_serve.handlers.checkpoints.archive_signature import SUMS
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine as TypedEngine
from hf_serve.handlers.errors import BadRequest, ConfigError, WrongConfig
from hf_serve.handlers.types.request import Request
from hf_serve.hosts.notebook import Engine
from tests.docs.pages import DOCS, blocks_of
from tests.sentences import refused
from tests.serving import Served

MODE = "sequence_classification"
TEXT = "A lovely film."


@pytest.fixture(scope="module")
def archive(packed: Callable[..., Path]) -> Path:
    return packed("pretrained", MODE)


@pytest.fixture(scope="module")
def engine(archive: Path) -> Engine:
    return Engine.load(archive)


def test_the_page_runs(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copyfile(archive, tmp_path / "sentiment.mar")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks_of(DOCS / "notebook.md"):
        exec(block.text, names)  # noqa: S102 - the example is ours
    assert isinstance(names["refused"], BadRequest)


def test_results_have_the_shape_of_the_inputs(
    engine: Engine, served: Callable[..., Served]
) -> None:
    expected = served(MODE).ask(TEXT)
    assert engine.predict(TEXT) == pytest.approx(expected)
    assert engine.predict([TEXT]) == [served(MODE).ask([TEXT])[0]]
    (single,) = engine.predict([TEXT], top_k=1)
    assert len(single) == 1


def test_columns_and_arrays_of_texts_are_lists(engine: Engine) -> None:
    expected = engine.predict([TEXT, "Dull."])
    texts = [TEXT, "Dull."]
    for column in (pd.Series(texts), pd.Series(texts).values, np.array(texts), deque(texts)):
        assert engine.predict(column) == expected, type(column)


@pytest.mark.parametrize("value", [np.zeros(3), memoryview(b"abc")], ids=["array", "memoryview"])
def test_an_array_of_numbers_is_one_input(engine: Engine, value: object) -> None:
    with pytest.raises(BadRequest):
        engine.predict(value)


def test_a_mode_is_for_folders(archive: Path, checkpoint: Callable[..., Path]) -> None:
    assert Engine.load(archive, mode=MODE).predict([TEXT])
    with refused(WrongConfig, "mode", "fill_mask", str(archive), MODE):
        Engine.load(archive, mode="fill_mask")
    with refused(WrongConfig, "fill_mask", 'mode="fill_mask"'):
        Engine.load(checkpoint(MODE), "fill_mask")  # type: ignore[arg-type]
    config = ModelConfig.parse({"handler": {"mode": MODE}})
    with refused(WrongConfig, "mode", "config"):
        Engine.load(checkpoint(MODE), config, mode="fill_mask")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "hpu"])
def test_a_device_that_is_not_there_is_refused(archive: Path, device: str) -> None:
    with refused(WrongConfig, "device", device):
        Engine.load(archive, device=device)


def test_requests_with_types_are_taken_as_they_are(engine: Engine) -> None:
    assert engine.predict([Request(TEXT)]) == [engine.predict(TEXT)]
    assert isinstance(engine, TypedEngine)


def test_a_cell_shows_a_table(engine: Engine) -> None:
    shown = engine.predict([TEXT, 5], top_k=1)._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<th>label</th>" in shown
    assert "<th>error</th>" in shown


def test_text_in_a_table_is_no_html(engine: Engine) -> None:
    result = type(engine.predict([TEXT]))(["<script>"])
    assert "<script>" not in result._repr_html_()


def test_a_cell_shows_the_page_of_an_explanation(engine: Engine) -> None:
    one, several = engine.explain(TEXT), engine.explain([TEXT, 5])
    assert one["words"]
    for shown in (one._repr_html_(), several._repr_html_()):
        assert shown.startswith("<iframe srcdoc=")
        assert "Importance for the target" in shown
        assert "<body>" not in shown  # It is escaped, in the frame.


def test_the_only_input_raises_its_error(engine: Engine) -> None:
    with pytest.raises(BadRequest):
        engine.predict(5)


def test_a_checkpoint_needs_its_mode(checkpoint: Callable[..., Path], engine: Engine) -> None:
    folder = checkpoint(MODE)
    assert Engine.load(str(folder), mode=MODE).predict(TEXT) == engine.predict(TEXT)
    with refused(WrongConfig, "mode"):
        Engine.load(folder)
    with refused(WrongConfig, "gone.mar"):
        Engine.load("gone.mar")


def test_a_changed_archive_is_refused(archive: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(archive, tmp_path / "unpacked", "zip")
    (tmp_path / "unpacked" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json"):
        Engine.load(tmp_path / "unpacked")


def test_an_archive_of_another_version_warns(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    shutil.unpack_archive(archive, folder, "zip")
    (folder / "handlers" / "errors.py").unlink()
    (folder / SUMS).unlink()
    with pytest.warns(UserWarning, match="another version"):
        Engine.load(folder)
