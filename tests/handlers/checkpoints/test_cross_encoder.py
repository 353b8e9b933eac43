"""The files of rerankers: modules that do not fit, and causal models without a template."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.cross_encoder import CrossEncoder
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.download import check_compatible
from tests.reference.rerankers import write
from tests.sentences import refused
from tests.serving import Served

MODE = "sentence_ranking"
BERT_CONFIG, SETTINGS = "sentence_bert_config.json", "config_sentence_transformers.json"
SCORE = "1_LogitScore/config.json"
Change = Callable[[Any], Any]


def read(folder: Path, **handler: Any) -> CrossEncoder:
    return CrossEncoder.read(Checkpoint.read(folder, HandlerSection(mode=MODE, **handler)))


def change(folder: Path, name: str, edit: Change) -> None:
    path = folder / name
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(edit(document)), encoding="utf-8")


def added(**keys: Any) -> Change:
    return lambda document: {**document, **keys}


def without_last(entries: Any) -> Any:
    return entries[:-1]


@pytest.mark.parametrize(
    ("kind", "name", "edit", "facts"),
    [
        ("ettin", "modules.json", without_last, ("modules.json", "scores")),
        ("ettin", "modules.json", lambda entries: entries[:2], ("modules.json", "scores")),
        ("ettin", "modules.json", lambda entries: [*entries, entries[2]], ("modules.json",)),
        ("ettin", "modules.json", lambda entries: entries[1:], ("modules.json", "Pooling")),
        ("ettin", "1_Pooling/config.json", added(include_prompt=False), ("include_prompt",)),
        ("ettin", "1_Pooling/config.json", added(pooling_mode=["cls", "max"]), (32, 64)),
        ("ettin", "2_Dense/config.json", added(module_output_name="token"), ("modules.json",)),
        ("ettin", BERT_CONFIG, added(transformer_task="fill-mask"), ("fill-mask",)),
        ("qwen3", BERT_CONFIG, added(transformer_task="any-to-any"), ("any-to-any",)),
        ("qwen3", BERT_CONFIG, added(processing_kwargs={"image": {"a": 1}}), ("image",)),
        ("qwen3", SCORE, added(true_token_id=5_000), (5_000, 400)),
        ("qwen3", SCORE, added(true_token_id=None), ("true_token_id",)),
        ("qwen3", SETTINGS, added(default_prompt_name="film"), ("film",)),
        ("qwen3", SETTINGS, lambda _: 5, (SETTINGS,)),
        ("stripped", "modules.json", lambda entries: [*entries, entries[1]], ("LogitScore",)),
    ],
)
def test_files_that_do_not_fit_are_refused(
    tmp_path: Path, kind: str, name: str, edit: Change, facts: tuple[object, ...]
) -> None:
    folder = write(tmp_path / "model", kind)
    change(folder, name, edit)
    with refused(WrongCheckpoint, *facts):
        read(folder)


def test_a_template_that_modules_need_is_refused_where_it_is_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "qwen3")
    (folder / "chat_template.jinja").unlink()
    with refused(WrongCheckpoint, "chat_template", "handler.ranking_template"):
        read(folder)
    assert read(folder, ranking_template="qwen3_reranker").template is not None


@pytest.mark.parametrize("kind", ["bare", "classifier"])
def test_a_causal_model_without_a_template_is_refused_before_its_weights(
    tmp_path: Path, kind: str
) -> None:
    folder = bare(tmp_path, kind)
    name = "Qwen3ForCausalLM" if kind == "bare" else "Qwen3ForSequenceClassification"
    handler = HandlerSection(mode=MODE, model_name="org/name")
    with refused(WrongCheckpoint, name, "handler.ranking_template"):
        check_compatible(handler, folder)


@pytest.mark.parametrize("kind", ["bare", "classifier"])
@pytest.mark.parametrize(
    "handler",
    [{"model_name": "Qwen/Qwen3-Reranker-0.6B"}, {"ranking_template": "qwen3_reranker"}],
)
def test_a_known_name_has_the_scores_of_the_template(
    tmp_path: Path, kind: str, handler: dict[str, Any]
) -> None:
    pair = ["Who sings?", "Nina sings."]
    expected = Served(write(tmp_path / "own", kind), MODE).ask(pair)
    assert Served(bare(tmp_path, kind), MODE, **handler).ask(pair) == pytest.approx(expected)


def bare(place: Path, kind: str) -> Path:
    """Write a checkpoint without modules and without a template."""
    folder = write(place / "model", kind)
    for name in ("modules.json", BERT_CONFIG, SETTINGS, "chat_template.jinja"):
        (folder / name).unlink(missing_ok=True)
    change(folder, "tokenizer_config.json", lambda found: {**found, "chat_template": None})
    return folder
