"""Rows that are made for warm-up, trials and exports have the special tokens of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import formats
from hf_serve.handlers.checkpoints.probe_inputs import SHAPES, RowMaker, TokenInputs
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.tasks.bases.text import TextTask
from hf_serve.handlers.types.request import Request
from tests import families
from tests.family_sizes import VOCABULARY

MODE = "sequence_classification"
# Classifiers that find the end of a text by its end token.
BY_END = ("bart", "mvp", "plbart", "t5", "umt5")
TEXTS = ["w7 w23 w41", "w60 w12 w9 w33 w80 w54 w17"]


def saved(family: str, folder: Path) -> Path:
    families.save(families.module(family, MODE), folder)
    return folder


def config(**handler: Any) -> ModelConfig:
    return ModelConfig.parse({"handler": {"mode": MODE, "dtype": "float32", **handler}})


def scores(engine: Engine) -> list[float]:
    outcomes: Any = engine.predict([Request(text, {"top_k": None}) for text in TEXTS])
    return [label["score"] for labels in outcomes for label in sorted(labels, key=str)]


def test_rows_have_the_frame_of_a_text_and_the_length_that_is_asked_for() -> None:
    maker = RowMaker.of(families.tokenizer(), VOCABULARY, 1)
    framed, same, short = (row.features["input_ids"] for row in maker.rows([9, 9, 1]))
    assert (framed[0], framed[-1], len(framed)) == (0, 2, 9)
    assert all(each >= VOCABULARY // 2 for each in framed[1:-1])
    assert same != framed and short == [2]
    batch = maker.batch(("input_ids", "attention_mask"), rows=2, width=9)
    assert batch["input_ids"][1].tolist()[5:] == [2, 1, 1, 1]
    assert batch["attention_mask"][1].tolist() == [1] * 6 + [0] * 3


def test_every_maker_of_rows_frames_them(tmp_path: Path) -> None:
    engine = Engine.load(saved("bart", tmp_path), config())
    task: Any = engine.task
    assert isinstance(task, TextTask)
    rows = [row for batch in task.warmup_batches(config(), engine.model) for row in batch]
    rows += [row for batch in task.checkpoint.probe_rows(100).batches for row in batch]
    assert all(row.features["input_ids"].count(2) == 1 for row in rows)
    module = engine.model.module  # type: ignore[attr-defined]
    assert all(
        (batch["input_ids"] == 2).sum(1).tolist() == [1] * len(batch["input_ids"])
        for batch in task.graph_inputs.batches(module)
    )


def test_a_model_with_relative_positions_is_traced_with_rows_of_any_length() -> None:
    """The config of XLNet says that it has -1 positions."""
    module = families.module("xlnet", MODE)
    batches = TokenInputs(("input_ids", "attention_mask")).batches(module)
    assert [batch["input_ids"].shape for batch in batches] == [*SHAPES]


@pytest.mark.parametrize("family", BY_END)
def test_classifiers_by_the_end_token_warm_up(family: str, tmp_path: Path, caplog: Any) -> None:
    engine = Engine.load(saved(family, tmp_path), config())
    assert isinstance(engine.model, PretrainedModel)
    assert not [each.message for each in caplog.records if "warm-up failed" in each.message]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("family", "save_mode"),
    [("bart", "onnx"), ("bart", "openvino"), ("bart", "torchscript"), ("t5", "onnx")],
)
def test_they_are_exported(family: str, save_mode: str, tmp_path: Path) -> None:
    folder = saved(family, tmp_path)
    expected = scores(Engine.load(folder, config()))
    formats.export(folder, config(save_mode=save_mode), folder)
    found = scores(Engine.load(folder, config(save_mode=save_mode)))
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.nightly
def test_a_graph_that_cannot_find_the_end_is_refused(tmp_path: Path) -> None:
    folder = saved("bart", tmp_path)
    with pytest.raises(WrongCheckpoint):
        formats.export(folder, config(save_mode="torch_export"), folder)
