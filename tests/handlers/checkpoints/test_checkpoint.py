from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import transformers

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint, read_processor
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import ConfigError, WrongCheckpoint
from tests import families, tiny
from tests.malformed import NESTED_JSON
from tests.sentences import Sentence, refused
from tests.serving import Served
from tests.tiny_tokenizers import POSITIONS

MODE = "sequence_classification"
Change = Callable[[Path], Any]


def broken(folder: Path, change: Change, mode: str = MODE) -> Path:
    change(tiny.write(folder, mode))
    return folder


def without(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (without("config.json"), ["config.json"]),
        (text("config.json", "{"), ["config.json"]),
        (text("config.json", "[1]"), ["config.json"]),
        (text("config.json", NESTED_JSON), ["config.json"]),
        (text("config.json", '{"model_type": "alien"}'), ["config.json"]),
        (text("config.json", '{"model_type": {}}'), ["config.json"]),
        (text("config.json", '{"model_type": "bert", "architectures": 1}'), ["config.json"]),
        (
            without("tokenizer.json", "tokenizer_config.json"),
            ["tokenizer", "tokenizer.json"],
        ),
        # The settings alone would make a tokenizer with an empty vocabulary.
        (without("tokenizer.json"), ["tokenizer"]),
        (text("tokenizer.json", "{"), ["tokenizer"]),
        (text("tokenizer.json", "{}"), ["tokenizer"]),
        (text("tokenizer.json", '{"added_tokens": []}'), ["tokenizer"]),
        (text("tokenizer_config.json", "{"), ["tokenizer"]),
        (text("tokenizer_config.json", NESTED_JSON), ["tokenizer"]),
        (text("index_to_name.json", '{"0": "a"}'), ["index_to_name.json", "1"]),
        (text("index_to_name.json", '{"1": "a"}'), ["index_to_name.json"]),
        (text("index_to_name.json", "{"), ["index_to_name.json"]),
        (text("index_to_name.json", '["a"]'), ["index_to_name.json"]),
    ],
)
def test_a_broken_file_stops_the_load_with_one_sentence(
    tmp_path: Path, change: Change, facts: list[str]
) -> None:
    with pytest.raises(WrongCheckpoint) as caught:
        Served(broken(tmp_path, change), MODE)
    assert str(caught.value) == Sentence(*facts)
    assert "\n" not in str(caught.value)


def test_a_broken_generation_config_stops_the_load(tmp_path: Path) -> None:
    broken(tmp_path, text("generation_config.json", "{"), "text_generation")
    with refused(WrongCheckpoint, "generation_config.json"):
        Served(tmp_path, "text_generation")


def test_a_tokenizer_without_offsets_is_refused(tmp_path: Path) -> None:
    broken(tmp_path, without("tokenizer.json", "tokenizer_config.json"))
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").touch()
    with refused(WrongCheckpoint, "ByT5Tokenizer"):
        Checkpoint.read(tmp_path, HandlerSection(mode=MODE)).tokenizer  # noqa: B018


@pytest.mark.filterwarnings("ignore:Deprecated in 0.9.0")
def test_a_tokenizer_is_built_from_a_vocabulary_file(tmp_path: Path) -> None:
    tiny.write(tmp_path, MODE)
    expected = Served(tmp_path, MODE).ask("A fine film")
    words = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(words, key=words.__getitem__)) + "\n")
    (tmp_path / "tokenizer.json").unlink()
    assert Served(tmp_path, MODE).ask("A fine film") == expected


@pytest.mark.parametrize(("family", "limit"), [("Bert", 128), ("Roberta", 128)])
def test_reserved_positions_hold_no_tokens(tmp_path: Path, family: str, limit: int) -> None:
    tiny.write(tmp_path, MODE, family=family)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del settings["model_max_length"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    model = Served(tmp_path, MODE)
    assert model.engine.task.limits.max_length == limit
    assert model.ask("Ada " * 500)


@pytest.mark.parametrize(("handler", "same"), [({"do_lower_case": False}, False), ({}, True)])
def test_the_yaml_configures_the_tokenizer(
    served: Any, handler: dict[str, Any], same: bool
) -> None:
    model: Served = served(MODE, **handler)
    assert (model.ask("ADA SINGS") == model.ask("ada sings")) is same


def test_max_tokens_is_max_length_limited_by_the_model(served: Any) -> None:
    assert served(MODE, max_length=16).engine.task.limits.max_length == 16
    assert served(MODE, max_length=4000).engine.task.limits.max_length == POSITIONS
    with refused(ConfigError, 2):
        served(MODE, max_length=2)


def test_a_backbone_in_another_repository_is_refused_without_asking_the_hub(
    tmp_path: Path,
) -> None:
    values = {"model_type": "dpt", "backbone": "org/model", "is_hybrid": False}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with refused(WrongCheckpoint, "org/model", "backbone_config"):
        Checkpoint.read(tmp_path, HandlerSection(mode="depth_estimation"))


@pytest.mark.skipif(find_spec("num2words") is not None, reason="num2words is installed")
def test_a_package_that_a_processor_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "processor_config.json").write_text("{}")
    tokenizer = families.tokenizer()
    with refused(WrongCheckpoint, "processor_config.json", "pip install num2words"):
        read_processor(tmp_path, transformers.SmolVLMConfig(), tokenizer, None)
