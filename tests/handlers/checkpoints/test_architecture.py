from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import (
    AutoConfig,
    DistilBertConfig,
    GPT2Config,
    PreTrainedConfig,
    Qwen2VLConfig,
    ViTConfig,
)

from hf_serve.handlers.checkpoints.architecture import (
    MAX_LAYERS,
    base_class_for,
    check_computation,
    check_head,
)
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.download import check_compatible
from tests.sentences import refused
from tests.serving import Served
from tests.tiny_tokenizers import write_gpt2

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


def test_a_config_from_which_no_model_can_be_built_is_refused() -> None:
    config = Qwen2VLConfig(architectures=["Qwen2VLModel"], text_config={"hidden_size": 0})
    with refused(WrongCheckpoint, "org/name", "qwen2_vl", "config.json", "ZeroDivisionError"):
        check_head(config, handler(), "AutoModel")


def test_custom_code_of_a_repository_is_never_run() -> None:
    config = distilbert("DistilBertForSequenceClassification")
    config.auto_map = {CLASSIFIER: "modeling_custom.Custom"}
    check_head(config, handler(), CLASSIFIER)
    foreign = ViTConfig(architectures=["Custom"], auto_map={CLASSIFIER: "modeling_custom.Custom"})
    with refused(WrongCheckpoint, CLASSIFIER):
        check_head(foreign, handler(), CLASSIFIER)


BASE, WRITER = "AutoModel", "AutoModelForCausalLM"
# As their repositories have it: the model type, and the classes of their code.
SAME = {
    "falcon": (
        "falcon",
        WRITER,
        "Falcon",
        "configuration_falcon",
        "modeling_falcon",
        "ForCausalLM",
    ),
    "mpt": ("mpt", WRITER, "MPT", "configuration_mpt", "modeling_mpt", "ForCausalLM"),
    "phi3": ("phi3", WRITER, "Phi3", "configuration_phi3", "modeling_phi3", "ForCausalLM"),
    "nomic": (
        *("nomic_bert", BASE, "NomicBert", "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert"),
        *("nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert", "Model"),
    ),
}
OTHER: dict[str, tuple[str, str, dict[str, str]]] = {
    "gte-Qwen2": ("qwen2", BASE, {BASE: "modeling_qwen.Qwen2Model"}),
    "LLM2Vec": ("llama", BASE, {BASE: "modeling_llama_encoder.LlamaEncoderModel"}),
    "MosaicBERT": (
        "bert",
        "AutoModelForMaskedLM",
        {
            "AutoConfig": "configuration_bert.BertConfig",
            "AutoModelForMaskedLM": "bert_layers.BertForMaskedLM",
        },
    ),
    "jina-embeddings-v3": (
        "xlm-roberta",
        "AutoModelForTextEncoding",
        {
            "AutoConfig": "jinaai/xlm-roberta-flash-implementation--c.XLMRobertaFlashConfig",
            BASE: "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA",
        },
    ),
    "another name": ("phi3", WRITER, {"AutoConfig": "c.Phi3Config", WRITER: "m.Phi3Changed"}),
}


def config_of(model_type: str, **values: Any) -> PreTrainedConfig:
    config: PreTrainedConfig = transformers.AutoConfig.for_model(model_type, **values)
    return config


@pytest.mark.parametrize("name", SAME)
def test_code_that_transformers_was_made_from_is_the_same(name: str) -> None:
    model_type, auto_class, prefix, configuration, modeling, head = SAME[name]
    classes = {
        "AutoConfig": f"{configuration}.{prefix}Config",
        auto_class: f"{modeling}.{prefix}{head}",
    }
    check_computation(config_of(model_type, auto_map=classes), auto_class, name)


@pytest.mark.parametrize("name", OTHER)
def test_other_code_is_refused_by_name(name: str) -> None:
    model_type, auto_class, classes = OTHER[name]
    config = config_of(model_type, auto_map=classes)
    loaded = BASE if auto_class == "AutoModelForTextEncoding" else auto_class
    with refused(WrongCheckpoint, name, classes[loaded], "auto_map", model_type):
        check_computation(config, auto_class, name)


def test_code_of_classes_that_the_mode_does_not_load_changes_nothing() -> None:
    classes = {"AutoTokenizer": ["tokenization.Own", None], WRITER: "modeling_qwen.Own"}
    check_computation(config_of("qwen2", auto_map=classes), BASE, "tokens")
    check_computation(config_of("qwen2", auto_map="none"), BASE, "no map")


def test_a_decoder_that_attends_in_both_directions_has_vectors_alone() -> None:
    check_computation(config_of("qwen2", is_causal=False), BASE, "model")
    check_computation(config_of("bert", is_causal=False), "AutoModelForMaskedLM", "model")
    with refused(WrongCheckpoint, "qwen2", "is_causal", WRITER):
        check_computation(config_of("qwen2", is_causal=False), WRITER, "model")


def write(folder: Path, head: str, **values: Any) -> Path:
    """Write a tiny Qwen3."""
    folder.mkdir()
    end = write_gpt2(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16}
    sizes |= {"intermediate_size": 64, "num_key_value_heads": 2, "vocab_size": 400}
    config = transformers.Qwen3Config(**sizes, pad_token_id=end, **values)
    getattr(transformers, f"Qwen3{head}")(config).save_pretrained(folder)
    return folder


def test_other_code_is_refused_at_the_load_and_at_the_download(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "Model", auto_map={BASE: "modeling_qwen.Qwen3Model"})
    handler = HandlerSection(mode="sentence_embedding", model_name="org/name")
    with refused(WrongCheckpoint, "org/name", "modeling_qwen.Qwen3Model"):
        check_compatible(handler, folder)
    with refused(WrongCheckpoint, "modeling_qwen.Qwen3Model"):
        Served(folder, "sentence_embedding")


def test_a_reranker_made_from_a_causal_model_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "ForSequenceClassification", num_labels=1)
    handler = HandlerSection(mode="sentence_ranking", model_name="org/name")
    with refused(WrongCheckpoint, "Qwen3ForSequenceClassification", "sentence_ranking"):
        check_compatible(handler, folder)
    with refused(WrongCheckpoint, "Qwen3ForSequenceClassification", "sentence_ranking"):
        Served(folder, "sentence_ranking")
    # Texts may have the template already.
    assert Served(folder, "sequence_classification").ask("Who sings?")[0]["label"] == "LABEL_0"


TINY = {"d_model": 16, "vocab_size": 32, "pad_token_id": 1}


@pytest.mark.parametrize("family", ["blenderbot", "m2m_100", "marian", "pegasus"])
def test_a_decoder_that_reads_a_second_text_has_no_vectors(family: str) -> None:
    with refused(WrongCheckpoint, "config.json", family, "text2text_generation"):
        base_class_for(AutoConfig.for_model(family, **TINY))


@pytest.mark.parametrize("family", ["perceiver", "vit", "whisper"])
def test_a_model_that_reads_no_tokens_has_no_vectors_of_texts(family: str) -> None:
    with refused(WrongCheckpoint, "config.json", family):
        base_class_for(AutoConfig.for_model(family))


@pytest.mark.parametrize(
    ("family", "auto_class"), [("bart", "AutoModel"), ("t5", "AutoModelForTextEncoding")]
)
def test_a_model_with_an_encoder_has_vectors(family: str, auto_class: str) -> None:
    assert base_class_for(AutoConfig.for_model(family, d_model=16)) == auto_class


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"model_type": "bert", "num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"model_type": "gpt2", "n_layer": 10**9}, "n_layer"),
        ({"model_type": "clip", "text_config": {"num_hidden_layers": 1_001}}, "num_hidden_layers"),
        ({"model_type": "swin", "depths": [2, 10**9]}, "depths"),
    ],
)
def test_a_config_with_too_many_layers_is_refused_before_it_is_built(
    tmp_path: Path, values: dict[str, Any], key: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values))
    with refused(WrongCheckpoint, "config.json", key, MAX_LAYERS):
        Checkpoint.read(tmp_path, handler())
