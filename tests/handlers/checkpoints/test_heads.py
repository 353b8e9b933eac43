from __future__ import annotations

import pytest
from transformers import DistilBertConfig, GPT2Config, PreTrainedConfig, ViTConfig

from handlers.checkpoints.heads import check_head
from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint
from tests.sentences import refused

CLASSIFIER = "AutoModelForSequenceClassification"
ANSWERER = "AutoModelForQuestionAnswering"


def distilbert(head: str, **more: object) -> PreTrainedConfig:
    return DistilBertConfig(
        vocab_size=16, dim=32, hidden_dim=64, n_layers=1, n_heads=2, architectures=[head], **more
    )


def handler(**more: object) -> HandlerSection:
    return HandlerSection.model_validate(
        {"mode": "sequence_classification", "model_name": "org/name", **more}
    )


@pytest.mark.parametrize(
    ("config", "auto_class"),
    [
        (distilbert("DistilBertForSequenceClassification"), CLASSIFIER),
        (distilbert("DistilBertForQuestionAnswering"), ANSWERER),
        (GPT2Config(n_layer=1, architectures=["GPT2LMHeadModel"]), "AutoModelForCausalLM"),
    ],
)
def test_a_checkpoint_with_the_modes_head_is_accepted(
    config: PreTrainedConfig, auto_class: str
) -> None:
    check_head(config, handler(), auto_class)


@pytest.mark.parametrize("head", ["DistilBertModel", "DistilBertForMaskedLM"])
def test_a_random_head_is_refused_unless_allowed(head: str) -> None:
    with refused(
        WrongCheckpoint,
        "org/name",
        head,
        "DistilBertForSequenceClassification",
        "handler.allow_random_head: true",
    ):
        check_head(distilbert(head), handler(), CLASSIFIER)
    check_head(distilbert(head), handler(allow_random_head=True, num_labels=7), CLASSIFIER)


def test_a_config_without_an_architecture_is_accepted() -> None:
    config = distilbert("")
    config.architectures = None
    check_head(config, handler(), CLASSIFIER)


def test_another_number_of_labels_is_refused_for_classifiers() -> None:
    config = distilbert("DistilBertForSequenceClassification", num_labels=3)
    check_head(config, handler(num_labels=3), CLASSIFIER)
    with refused(WrongCheckpoint, 3, "handler.num_labels", 2):
        check_head(config, handler(num_labels=2), CLASSIFIER)
    check_head(distilbert("DistilBertForQuestionAnswering"), handler(num_labels=9), ANSWERER)


def test_a_model_type_without_a_class_for_the_mode_is_always_refused() -> None:
    config = ViTConfig(architectures=["ViTForImageClassification"])
    with refused(WrongCheckpoint, "vit", CLASSIFIER):
        check_head(config, handler(allow_random_head=True), CLASSIFIER)


def test_custom_code_of_a_repository_is_never_run() -> None:
    config = distilbert("DistilBertForSequenceClassification")
    config.auto_map = {CLASSIFIER: "modeling_custom.Custom"}
    check_head(config, handler(), CLASSIFIER)
    foreign = ViTConfig(architectures=["Custom"], auto_map={CLASSIFIER: "modeling_custom.Custom"})
    with refused(WrongCheckpoint, CLASSIFIER):
        check_head(foreign, handler(), CLASSIFIER)
