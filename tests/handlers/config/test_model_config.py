from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_serve.handlers.config.handler_section import HandlerSection, modes, save_modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from tests.sentences import refused
from tests.serving import Served

OLD_EXAMPLE = """\
minWorkers: 1
maxWorkers: 1

handler:
  model_name: bert-base-uncased
  mode: sequence_classification
  do_lower_case: true
  num_labels: 2
  save_mode: pretrained
  max_length: 150
  captum_explanation: true
  embedding_name: bert
  BetterTransformer: false
  model_parallel: false

pt2:
  compile:
    enable: True
    backend: inductor
    mode: reduce-overhead
"""


def test_the_keys_of_the_old_example_are_read_unchanged() -> None:
    document = yaml.safe_load(OLD_EXAMPLE)
    config = ModelConfig.parse(document)
    handler = config.handler.model_dump(include=set(document["handler"]))
    assert handler == document["handler"]
    assert config.pt2.compile.model_dump(include={"enable", "backend", "mode"}) == {
        "enable": True,
        "backend": "inductor",
        "mode": "reduce-overhead",
    }


def test_num_labels_0_of_the_old_example_sets_no_number_of_labels(served: Any) -> None:
    model: Served = served("question_answering", num_labels=0)
    assert model.ask({"question": "Who?", "context": "Ada"})["answer"] == "Ada"


def test_a_mode_alone_is_a_config_with_safe_defaults() -> None:
    handler = ModelConfig.parse({"handler": {"mode": "token_classification"}}).handler
    assert handler.save_mode == "pretrained"
    assert not handler.allow_pickle and not handler.allow_random_head
    assert (handler.max_length, handler.num_labels, handler.revision) == (None, None, None)


def test_every_config_of_the_repository_is_valid() -> None:
    paths = sorted(Path(__file__).parents[3].glob("model_configs/**/*.yaml"))
    found = [ModelConfig.read(path).handler for path in paths]
    assert {handler.mode for handler in found} >= set(modes())
    assert {handler.save_mode for handler in found} >= set(save_modes()) - {"neuron"}
    assert all(handler.model_name and handler.revision for handler in found)


@pytest.mark.parametrize("name", ["no.yaml", "."])
def test_a_path_without_a_file_is_an_error(tmp_path: Path, name: str) -> None:
    with refused(WrongConfig):
        ModelConfig.read(tmp_path / name)


def test_pt2_may_be_the_backend_alone() -> None:
    config = ModelConfig.parse({"handler": {"mode": "text_generation"}, "pt2": "inductor"})
    assert (config.pt2.compile.enable, config.pt2.compile.backend) == (True, "inductor")


@pytest.mark.parametrize(
    ("keys", "predict", "shared", "explain"),
    [
        ({}, 96, 48, 60),
        ({"explain_timeout": 20}, 96, 80, 20),
        ({"predict_timeout": 70}, 70, 70, 40),
        ({"predict_timeout": 20}, 20, 20, 60),
        ({"captum_explanation": False}, 96, 96, 0),
    ],
)
def test_predictions_and_explanations_of_a_batch_share_the_response_timeout(
    keys: dict[str, Any], predict: float, shared: float, explain: float
) -> None:
    config = ModelConfig.parse({"handler": {"mode": "sequence_classification", **keys}})
    assert config.predict_seconds == predict
    assert (config.shared_predict_seconds, config.explain_seconds) == (shared, explain)


def test_time_limits_that_reach_the_response_timeout_together_are_refused() -> None:
    keys = {"predict_timeout": 70, "explain_timeout": 50}
    with refused(WrongConfig, "predict_timeout", 70, "explain_timeout", 50):
        ModelConfig.parse({"handler": {"mode": "sequence_classification", **keys}})
    keys = {"predict_timeout": 120}
    with refused(WrongConfig, "predict_timeout", 120):
        ModelConfig.parse({"handler": {"mode": "sequence_classification", **keys}})
    keys = {"explain_timeout": 120}
    with refused(WrongConfig, "explain_timeout", "responseTimeout", 120):
        ModelConfig.parse({"handler": {"mode": "sequence_classification", **keys}})


def test_stored_responses_need_one_worker() -> None:
    keys = {"handler": {"mode": "text_generation", "stored_responses": 5}}
    assert ModelConfig.parse(keys).handler.stored_responses == 5
    with refused(WrongConfig, "handler.stored_responses", 5, "maxWorkers", 2):
        ModelConfig.parse({**keys, "maxWorkers": 2})


def test_a_long_explain_timeout_leaves_time_for_predictions() -> None:
    handler = {"mode": "sequence_classification", "explain_timeout": 119.9}
    config = ModelConfig.parse({"handler": handler})
    assert config.explain_seconds == pytest.approx(96)
    assert config.shared_predict_seconds == pytest.approx(19.2)


def test_a_request_may_have_eight_times_the_rows_of_one_text() -> None:
    keys: list[dict[str, Any]] = [{}, {"max_rows": 5}, {"max_rows": 5, "max_request_rows": 10}]
    limits = [HandlerSection(mode="question_answering", **each).request_rows for each in keys]
    assert limits == [1024, 40, 10]


def test_a_request_may_have_the_sequences_of_one_prompt() -> None:
    settings = HandlerSection(mode="text_generation", max_rows=1, max_sequences=16)
    assert settings.request_rows == 16


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "ä", "-a", "a" * 65])
def test_the_name_of_an_adapter_is_part_of_a_path(name: str) -> None:
    with refused(WrongConfig, "handler.adapters", 64):
        ModelConfig.parse({"handler": {"mode": "text_generation", "adapters": {name: "org/name"}}})


def test_the_default_adapter_is_one_of_the_adapters() -> None:
    handler = {"mode": "text_generation", "parameters": {"adapter_id": "dutch"}}
    with refused(WrongConfig, "parameters.adapter_id", "dutch", "adapters", "french"):
        ModelConfig.parse({"handler": {**handler, "adapters": {"french": "org/name"}}})


def test_a_draft_model_has_none_of_the_adapters() -> None:
    handler = HandlerSection.model_validate(
        {"mode": "text_generation", "assistant_model": "org/draft", "adapters": {"a": "org/a"}}
    )
    assert handler.assistant is not None
    assert (handler.assistant.model_name, handler.assistant.adapters) == ("org/draft", {})


def test_a_key_that_stands_twice_is_refused_with_its_section(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(OLD_EXAMPLE.replace("  num_labels: 2", "  mode: fill_mask"), encoding="utf-8")
    with refused(WrongConfig, str(path), "handler.mode"):
        ModelConfig.read(path)
