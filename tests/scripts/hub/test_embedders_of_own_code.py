"""Embedders that no class of transformers computes are refused by their small files.

The files have the names, modules and keys of the repositories.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.download import check_compatible
from tests.sentences import refused
from tests.tiny_tokenizers import write_bert

POOLING = "sentence_transformers.models.Pooling"
TRANSFORMER = "sentence_transformers.models.Transformer"
NEW = "Alibaba-NLP/new-impl--"
FLASH = "jinaai/xlm-roberta-flash-implementation--"
NOMIC = "nomic-ai/nomic-bert-2048--"
# The first module, the config, and the facts of the sentence.
REPOSITORIES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "gte-Qwen2-7B-instruct": (
        TRANSFORMER,
        {
            "model_type": "qwen2",
            "architectures": ["Qwen2ForCausalLM"],
            "auto_map": {
                "AutoModel": "modeling_qwen.Qwen2Model",
                "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM",
            },
        },
        ["modeling_qwen.Qwen2Model", "is_causal: false"],
    ),
    "gte-multilingual-base": (
        TRANSFORMER,
        {
            "model_type": "new",
            "architectures": ["NewModel"],
            "auto_map": {
                "AutoConfig": f"{NEW}configuration.NewConfig",
                "AutoModel": f"{NEW}modeling.NewModel",
            },
        },
        ["new", f"{NEW}configuration.NewConfig"],
    ),
    "snowflake-arctic-embed-m-v2.0": (
        TRANSFORMER,
        {
            "model_type": "gte",
            "architectures": ["GteModel"],
            "auto_map": {
                "AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig",
                "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel",
            },
        },
        ["gte", "configuration_hf_alibaba_nlp_gte.GteConfig"],
    ),
    "nomic-embed-text-v2-moe": (
        TRANSFORMER,
        {
            "model_type": "nomic_bert",
            "architectures": ["NomicBertModel"],
            "auto_map": {
                "AutoConfig": f"{NOMIC}configuration_hf_nomic_bert.NomicBertConfig",
                "AutoModel": f"{NOMIC}modeling_hf_nomic_bert.NomicBertModel",
            },
            "n_embd": 768,
            "num_experts": 8,
            "moe_every_n_layers": 2,
            "moe_top_k": 2,
        },
        ["num_experts", "8"],
    ),
    "jina-embeddings-v3": (
        "custom_st.Transformer",
        {
            "model_type": "xlm-roberta",
            "architectures": ["XLMRobertaModel"],
            "auto_map": {
                "AutoConfig": f"{FLASH}configuration_xlm_roberta.XLMRobertaFlashConfig",
                "AutoModel": f"{FLASH}modeling_lora.XLMRobertaLoRA",
            },
        },
        [f"{FLASH}modeling_lora.XLMRobertaLoRA"],
    ),
    "another one with a module of its own": (
        "custom_st.Transformer",
        {"model_type": "bert", "architectures": ["BertModel"]},
        ["custom_st.Transformer", "modules.json"],
    ),
}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_repository_is_refused_before_its_weights_are_downloaded(
    tmp_path: Path, name: str
) -> None:
    module, config, facts = REPOSITORIES[name]
    write_bert(tmp_path)
    modules = [("", module), ("1_Pooling", POOLING)]
    entries = [{"idx": 0, "name": "0", "path": path, "type": kind} for path, kind in modules]
    (tmp_path / "modules.json").write_text(json.dumps(entries), encoding="utf-8")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    handler = HandlerSection(mode="sentence_embedding", model_name=f"org/{name}")
    with refused(WrongCheckpoint, *facts):
        check_compatible(handler, tmp_path)
