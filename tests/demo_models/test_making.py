from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GPT2LMHeadModel, pipeline

from hf_serve.demo_models import MODES, Score, make, make_all
from hf_serve.demo_models.making import UnknownMode
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.download import Source
from tests.sentences import refused

QUICK: dict[str, Any] = {"rows": 24, "evaluation_rows": 8}
MODE = "text_generation"


@pytest.fixture(scope="module", autouse=True)
def trained_with_one_thread() -> Iterator[None]:
    """Train as the tests compute, with one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_serve.demo_models.training.THREADS", 1)
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after three steps of training."""
    target = tmp_path_factory.mktemp("models") / MODE
    make(MODE, target, **QUICK)
    return target


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_there_is_a_demo_model_for_every_mode_that_is_served() -> None:
    assert sorted(MODES) == modes()


def test_the_checkpoint_can_be_loaded_by_transformers(tiny: Path) -> None:
    model, tokenizer = GPT2LMHeadModel.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    assert 1500 < len(tokenizer) == model.config.vocab_size <= 2000
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == model.generation_config.eos_token_id
    assert tokenizer.decode(tokenizer("Ein Bär, 雨!")["input_ids"]) == "Ein Bär, 雨!"
    assert {path.stat().st_mode & 0o777 for path in tiny.iterdir()} == {0o644}


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_files(tiny: Path, tmp_path: Path) -> None:
    make(MODE, tmp_path / MODE, **QUICK)
    assert bytes_of(tmp_path / MODE) == bytes_of(tiny)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("mode", "task"),
    [
        ("sequence_classification", "text-classification"),
        pytest.param("token_classification", "ner", marks=pytest.mark.nightly),
    ],
)
def test_a_classifier_has_its_labels(mode: str, task: Any, tmp_path: Path) -> None:
    score = make(mode, tmp_path / mode, **QUICK)
    answer = pipeline(task, model=str(tmp_path / mode), device="cpu")("Eva lives in Oslo.")
    assert all("LABEL" not in item.get("label", item.get("entity")) for item in answer)
    assert score == Score.read(tmp_path / mode)
    assert all(0 <= value <= 1 for value in score.measures.values())


@pytest.mark.nightly
def test_training_reports_its_progress_and_restores_the_state_of_torch(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("hf_serve.demo_models.training.THREADS", 2)
    threads, state, ticks = torch.get_num_threads(), torch.get_rng_state(), list[float]()
    make("question_answering", tmp_path / "made", **QUICK, tick=ticks.append)
    assert ticks == sorted(ticks)
    assert ticks[-1] == 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_finished_checkpoint_is_kept(tiny: Path) -> None:
    before = bytes_of(tiny)
    [made] = make_all([MODE], tiny.parent)
    assert (made.seconds, made.score) == (0, Score.read(tiny))
    assert bytes_of(tiny) == before


def test_a_downloader_may_replace_it(tiny: Path) -> None:
    source = Source.read(tiny)
    assert source is not None
    assert source.is_complete_in(tiny)


@pytest.mark.nightly
def test_an_interrupted_run_keeps_the_previous_checkpoint_and_can_be_repeated(
    tiny: Path, tmp_path: Path
) -> None:
    def stop(done: float) -> None:
        raise KeyboardInterrupt

    target = tmp_path / MODE
    with pytest.raises(KeyboardInterrupt):
        make(MODE, target, **QUICK, tick=stop)
    assert not target.exists()
    shutil.copytree(tiny, target)
    with pytest.raises(KeyboardInterrupt):
        make(MODE, target, **QUICK, seed=3, tick=stop)
    assert bytes_of(target) == bytes_of(tiny)
    assert make(MODE, target, **QUICK, seed=3) == Score.read(target)


def test_a_folder_without_a_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / MODE).mkdir()
    (tmp_path / MODE / "diary.txt").touch()
    with refused(WrongCheckpoint):
        make_all([MODE], tmp_path)
    assert (tmp_path / MODE / "diary.txt").exists()


def test_an_unknown_mode_is_refused_before_training(tmp_path: Path) -> None:
    with refused(UnknownMode, "token_classification"):
        make_all([MODE, "token_clasification"], tmp_path)
    assert not list(tmp_path.iterdir())
