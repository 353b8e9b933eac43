"""Checkpoints with code of their own: which of them transformers computes as they are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import PreTrainedConfig

from handlers.checkpoints.own_code import check_computation
from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint
from scripts.hub.download import check_compatible
from tests.sentences import refused
from tests.serving import Served
from tests.tiny_tokenizers import write_gpt2

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


def test_a_decoder_that_attends_in_both_directions_is_refused() -> None:
    with refused(WrongCheckpoint, "qwen2", "is_causal"):
        check_computation(config_of("qwen2", is_causal=False), BASE, "model")
    check_computation(config_of("bert", is_causal=False), BASE, "model")


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
