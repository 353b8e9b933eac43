"""Rerankers as sentence-transformers 6 saves them, and what it is asked with them.

Each has the files, modules and keys of a published one, with seeded weights and other words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from tests import tiny
from tests.reference.embedding_checkpoints import Module, digest
from tests.reference.rows import COMBINED, DULL, FINE, LONG, LONG_QUESTION, ODD, PEOPLE, WHO
from tests.tiny_tokenizers import write_chat

__all__ = ["KINDS", "RANKINGS", "Ranking", "digest", "write"]

SIZE, LENGTH = 32, 1024
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"
GELU = "torch.nn.modules.activation.GELU"
NEW = "sentence_transformers.sentence_transformer.modules"
BASE = "sentence_transformers.base.modules"
LOGIT_SCORE = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
# A template of the roles query and document, with the words of Qwen3-Reranker.
QWEN3 = """\
{%- set told = namespace(system="Given a web search query, retrieve relevant passages that answer \
the query", query="", document="") -%}
{%- for each in messages -%}
  {%- if each.role == "system" -%}{%- set told.system = each.content -%}
  {%- elif each["role"] == "query" -%}{%- set told.query = each.content -%}
  {%- elif each["role"] == "document" -%}{%- set told.document = each.content -%}{%- endif -%}
{%- endfor -%}
{{ '<|im_start|>system\\nJudge whether the Document meets the requirements based on the Query and \
the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\\n' -}}
{{ '<|im_start|>user\\n<Instruct>: ' + told.system + '\\n<Query>: ' + told.query -}}
{{ '\\n<Document>: ' + told.document + '<|im_end|>\\n<|im_start|>assistant\\n' -}}
{{ '<think>\\n\\n</think>\\n\\n' }}"""
# A template without a place for an instruction; the query is the message of the system.
ZERANK = """\
{%- for each in messages if each.role in ("query", "document") -%}
{{ '<|im_start|>' + ('system' if each.role == 'query' else 'user') + '\\n' + each.content -}}
{{ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""
# One that strips texts, which are parts of messages, and has the instruction behind them.
STRIPPED = """\
{%- for each in messages if each.role in ("query", "document") -%}
{{ each.role + ': ' + each.content[0].text | trim + '\\n' -}}
{%- endfor -%}
{%- for each in messages if each.role == "system" -%}{{ each.content[0].text }}{%- endfor -%}
{{ '\\nRelevance:' }}"""


def dense(size: int, count: int, activation: str, *, bias: bool = True, last: str = "") -> Module:
    """Return a dense layer, which writes `last` in place of a vector."""
    return f"{BASE}.dense.Dense", {
        "in_features": size,
        "out_features": count,
        "bias": bias,
        "activation_function": activation,
        "module_input_name": "sentence_embedding",
        "module_output_name": last or "sentence_embedding",
    }


def pooling(mode: str | list[str]) -> Module:
    """Return a pooling."""
    config = {"embedding_dimension": SIZE, "pooling_mode": mode, "include_prompt": True}
    return f"{NEW}.pooling.Pooling", config


def norm(size: int = SIZE) -> Module:
    """Return a layer normalization."""
    return f"{NEW}.layer_norm.LayerNorm", {"dimension": size}


class Kind(NamedTuple):
    """A checkpoint.

    Attributes:
        head: the end of the name of its class.
        modules: those behind the model; None for a checkpoint without modules.json.
        tokens: the tokens of LogitScore: true, and false if there is one.
        template: the chat template, in its own file or in the settings of the tokenizer.
        processing: arguments of the tokenizer and of the template.
        settings: further keys of config_sentence_transformers.json.
    """

    family: str
    head: str
    modules: Sequence[Module] | None = ()
    tokens: Sequence[str] = ()
    template: str = ""
    structured: bool = False
    processing: Mapping[str, Any] = {}
    activation: str = SIGMOID
    settings: Mapping[str, Any] = {}
    config: Mapping[str, Any] = {}


KINDS: dict[str, Kind] = {
    "ettin": Kind(
        "ModernBert",
        "Model",
        [
            pooling("cls"),
            dense(SIZE, SIZE, GELU, bias=False),
            norm(),
            dense(SIZE, 1, IDENTITY, last="scores"),
        ],
        activation=IDENTITY,
    ),
    "pooled": Kind(
        "ModernBert",
        "Model",
        [
            pooling(["mean", "max"]),
            norm(2 * SIZE),
            dense(2 * SIZE, 8, GELU),
            dense(8, 3, IDENTITY, last="scores"),
        ],
        activation=IDENTITY,
        settings={"prompts": {"question": "Question: "}, "default_prompt_name": "question"},
    ),
    "qwen3": Kind("Qwen3", "ForCausalLM", tokens=("yes", "no"), template=QWEN3),
    "zerank": Kind(
        "Qwen3",
        "ForCausalLM",
        tokens=("Yes",),
        template=ZERANK,
        processing={"chat_template": {"add_generation_prompt": True}},
        activation=IDENTITY,
        config={"tie_word_embeddings": False},
    ),
    "stripped": Kind(
        "Gemma",
        "ForCausalLM",
        tokens=("1", "0"),
        template=STRIPPED,
        structured=True,
        processing={"text": {"max_length": 330}},
        settings={"prompts": {"film": "Is it about a film?"}, "default_prompt_name": "film"},
    ),
    "classifier": Kind("Qwen3", "ForSequenceClassification", template=QWEN3),
    "bare": Kind("Qwen3", "ForCausalLM", None, template=QWEN3),
    "pairs": Kind("Llama", "ForSequenceClassification"),
}
CONFIGS: dict[str, dict[str, Any]] = {
    # With a window of 16 tokens in every second layer.
    "ModernBert": {"local_attention": 16, "global_attn_every_n_layers": 2},
    "Qwen3": {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True},
    "Gemma": {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True},
    "Llama": {"num_key_value_heads": 1},
}
SPOKEN = "[CLS] Ada <|im_end|> Tom </s>"
TEXTS = [FINE, DULL, PEOPLE, ODD, COMBINED, LONG, "zzz", "🎉", SPOKEN, " \n Ada \n"]


class Ranking(NamedTuple):
    """A query with texts, and the prompt before it; `max_length` cuts the texts of a long pair."""

    query: str
    texts: list[str]
    prompt: str | None = None
    max_length: int | None = None


RANKINGS = [
    Ranking(WHO, TEXTS),
    Ranking(ODD, TEXTS[:3]),
    Ranking(f" {LONG_QUESTION}\n", [f"{LONG} {LONG}", PEOPLE, FINE]),
    Ranking(WHO, TEXTS[:4], prompt="Find a text about a person, and no film."),
    Ranking(WHO, [f"{LONG} {LONG}", f"{PEOPLE} {LONG} {LONG}", FINE], max_length=330),
    Ranking("🎉", [DULL]),
]


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind: the same weights on every machine."""
    given, seed = KINDS[kind], len(kind)
    folder.mkdir(parents=True)
    classifies = given.head == "ForSequenceClassification"
    tokens = write_chat(folder, LENGTH, pairs=given.family == "ModernBert")
    ids = {token: number for number, token in enumerate(tokens)}
    config = {
        **tiny.tiny_sizes(),
        **CONFIGS[given.family],
        **({"id2label": {0: "LABEL_0"}} if classifies else {}),
        **given.config,
        "vocab_size": len(tokens),
        "pad_token_id": ids["<|endoftext|>"],
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "max_position_embeddings": LENGTH,
    }
    tiny.write_model(folder, given.family, given.head, config, seed)
    _write_template(folder, given)
    if given.modules is not None:
        _write_modules(folder, given, ids)
        _write_settings(folder, given)
    return folder


def _write_template(folder: Path, given: Kind) -> None:
    """Write the template as new versions do, or without modules as old ones do."""
    if given.modules is None:
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text(encoding="utf-8"))
        _dump(path, {**settings, "chat_template": given.template})
    elif given.template:
        (folder / "chat_template.jinja").write_text(given.template, encoding="utf-8")


def _write_modules(folder: Path, given: Kind, ids: Mapping[str, int]) -> None:
    modules = list(given.modules or ())
    if given.tokens:
        true, *false = (ids[token] for token in given.tokens)
        scored = {"true_token_id": true, "false_token_id": false[0] if false else None}
        modules.append((LOGIT_SCORE, scored))
    named = [(f"{BASE}.transformer.Transformer", {}), *modules]
    entries = []
    for number, (kind, config) in enumerate(named):
        path = f"{number}_{kind.rpartition('.')[2]}" if number else ""
        entries.append({"idx": number, "name": str(number), "path": path, "type": kind})
        if number:
            (folder / path).mkdir()
            _dump(folder / path / "config.json", config)
            _write_weights(folder / path, kind, config)
    _dump(folder / "modules.json", entries)


def _write_weights(folder: Path, kind: str, config: Mapping[str, Any]) -> None:
    random = np.random.Generator(np.random.PCG64(sum(map(ord, folder.name))))
    if kind.endswith(".Dense"):
        shape = (config["out_features"], config["in_features"])
        weights = {"linear.weight": random.random(shape) - 0.5}
        weights |= {"linear.bias": random.random(shape[0])} if config["bias"] else {}
    elif kind.endswith(".LayerNorm"):
        weights = {
            f"norm.{name}": random.random(config["dimension"]) for name in ("weight", "bias")
        }
    else:
        return
    found = {name: each.astype(np.float32) for name, each in weights.items()}
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})


def _write_settings(folder: Path, given: Kind) -> None:
    output, name, task = {
        "Model": ("last_hidden_state", "token_embeddings", "feature-extraction"),
        "ForCausalLM": ("logits", "causal_logits", "text-generation"),
        "ForSequenceClassification": ("logits", "scores", "sequence-classification"),
    }[given.head]
    forward = {"method": "forward", "method_output_name": output}
    message = {**forward, "format": "structured" if given.structured else "flat"}
    document = {
        "transformer_task": task,
        "modality_config": {"text": forward, **({"message": message} if given.template else {})},
        "module_output_name": name,
        **({"processing_kwargs": given.processing} if given.processing else {}),
    }
    _dump(folder / "sentence_bert_config.json", document)
    settings = {
        "__version__": {"pytorch": "2.13.0", "sentence_transformers": "6.2.0"},
        "activation_fn": given.activation,
        "default_prompt_name": None,
        "model_type": "CrossEncoder",
        "prompts": {},
        **given.settings,
    }
    _dump(folder / "config_sentence_transformers.json", settings)


def _dump(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
