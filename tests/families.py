"""A tiny random model of each family of transformers that has a classification head.

Sizes are set where a config has them. Weights are large, so that a token that a text must not
attend to changes its outputs visibly.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto import modeling_auto

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.formats.weights import pool_last_token
from hf_serve.handlers.tasks.warmup import warm_up
from tests.family_sizes import SIZES, VALUES, VOCABULARY

HEADS = {
    "token_classification": modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
    "sequence_classification": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "text_generation": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
}
CLASSIFIER_MODES = ("token_classification", "sequence_classification")
SPECIAL = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")  # in the order of RoBERTa
# Families that are not tried, and why.
SKIPPED = {
    "axk1": "as deepseek_v2",
    "axk2": "as deepseek_v2",
    "bros": "needs the boxes of a page's words",
    "cohere_compass_text": "its rotary parameters depend on its layer types",
    "deepseek_v2": "its sizes depend on each other; deepseek's attention is that of other decoders",
    "deepseek_v3": "as deepseek_v2",
    "gemma3": "is gemma3_text with images",
    "layoutlmv2": "needs detectron2",
    "layoutlmv3": "needs the boxes of a page's words",
    "minicpm3": "as deepseek_v2",
    "mistral4": "as deepseek_v2",
    "modernvbert": "is modernbert with images",
    "qwen3_asr": "needs sound",
    "qwen3_5": "is qwen3_5_text with images",
    "t5gemma": "has nested sizes, above 4 billion parameters",
    "t5gemma2": "has nested sizes, above 4 billion parameters",
    "ultravbert": "needs images",
    "zamba": "transformers 5.5 cannot build it with few layers",
    "zamba2": "transformers 5.5 builds it with 54 layers only",
}
LARGEST = 4_000_000  # parameters; a family that has more ignores a size below

CLASSIFIERS = sorted({name for mode in CLASSIFIER_MODES for name in HEADS[mode]} - set(SKIPPED))


def modes(family: str) -> list[str]:
    """Return the modes that a family has a classification head for."""
    return [mode for mode in CLASSIFIER_MODES if family in HEADS[mode]]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words w5 to w99."""
    names = {**{name: number for number, name in enumerate(SPECIAL)}}
    names |= {f"w{number}": number for number in range(len(SPECIAL), VOCABULARY)}
    made = Tokenizer(models.WordLevel(names, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [(name, names[name]) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, special)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )


def module(family: str, mode: str, **values: Any) -> PreTrainedModel:
    """Return a model with random weights.

    Args:
        family: the `model_type`.
        mode: the mode whose head it has.
        **values: further values of its config.
    """
    named = AutoConfig.for_model(family).to_dict()
    sizes = {name: size for name, size in SIZES.items() if name in named}
    chosen = {**sizes, **VALUES.get(family, {}), **values}
    given = {name: value for name, value in chosen.items() if value is not None}
    config = AutoConfig.for_model(family, **given)
    auto = getattr(transformers, tasks.get(mode).auto_class)
    with torch.device("meta"):
        parameters = sum(each.numel() for each in auto.from_config(config).parameters())
    assert parameters <= LARGEST, f"{family} has {parameters:,} parameters"
    torch.manual_seed(0)
    made: PreTrainedModel = auto.from_config(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.uniform_(-0.5, 0.5)
    return made


def save(module: PreTrainedModel, folder: Path) -> None:
    """Write a checkpoint."""
    module.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def checkpoint(module: PreTrainedModel, handler: HandlerSection) -> Checkpoint:
    """Return the checkpoint of a model that is not in files."""

    class InMemory(Checkpoint):
        @cached_property
        def tokenizer(self) -> Any:
            return tokenizer()

    return InMemory(Path(), module.config, handler)


def engine(module: PreTrainedModel, mode: str, **handler: Any) -> Engine:
    """Return a model as it is served, after its warm-up."""
    config = ModelConfig.parse({"handler": {"mode": mode, "dtype": "float32", **handler}})
    task_class = tasks.get(mode)
    task = task_class(checkpoint(module, config.handler), config.handler)
    pool_last_token(module, task.checkpoint)
    model = PretrainedModel(
        module.requires_grad_(requires_grad=False), task.description.outputs.names
    )
    warm_up(task, model, config)
    return Engine(task, model)
