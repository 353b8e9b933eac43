"""A tiny T5 with its own tokenizer learns to write a text for another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from tokenizers import Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, chunks, collate

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
ENTRIES = 400
POSITIONS = 128
ROWS = 32
# A text and what is to be written for it.
Example = tuple[str, str]


class TextToTextTrainer(Trainer):
    """Texts with the texts to write for them; the score is how many are written exactly.

    Attributes:
        prefix: what the model reads before each text.
        task_specific_params: the settings of pipelines in its config.
    """

    prefix: ClassVar[str] = ""
    task_specific_params: ClassVar[Mapping[str, Any]] = {}
    plan = Plan(rows=9600, batch=32, rate=6e-3)
    evaluation_rows = 200

    @abstractmethod
    def examples(self, split: Split, count: int, seed: int) -> list[Example]:
        """Write examples."""

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return a T5 with random weights, and a tokenizer trained on the texts."""
        pairs = self.examples("train", self.plan.rows, seed)
        texts = [self.prefix, *(text for pair in pairs for text in pair)]
        tokenizer = _tokenizer(texts)
        ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        start = {"decoder_start_token_id": tokenizer.pad_token_id}
        shape = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4}
        config = T5Config(vocab_size=len(tokenizer), **shape, **ends, **start)
        config.task_specific_params = dict(self.task_specific_params)
        model = T5ForConditionalGeneration(config)
        model.generation_config = GenerationConfig(**ends, **start)
        return model, tokenizer

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Encode examples."""
        return [
            {**tokenizer(self.prefix + text), "labels": tokenizer(written)["input_ids"]}
            for text, written in self.examples("train", rows, seed)
        ]

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Count the held-out texts for which exactly the right one is written."""
        held_out = self.examples("held_out", rows, seed)
        written = _write(model, tokenizer, [self.prefix + text for text, _ in held_out])
        pairs = zip(written, held_out, strict=True)
        return {"exact match": mean(found == expected for found, (_, expected) in pairs)}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write texts that are not among the training rows."""
        return [text for text, _ in self.examples("held_out", rows // 4, seed)]


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerBase:
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(
        texts, ENTRIES, special_tokens=[PAD, END, UNKNOWN], show_progress=False
    )
    kernel = Tokenizer.from_str(trained.to_str())
    kernel.post_processor = TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, kernel.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=kernel,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    )


@torch.inference_mode()
def _write(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> list[str]:
    written: list[str] = []
    for part in chunks([dict(tokenizer(text)) for text in texts], ROWS):
        ids = model.generate(**collate(part, model.config.pad_token_id), max_new_tokens=40)
        written += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return written
