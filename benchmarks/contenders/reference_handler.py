"""The reference handler: tokenizes each row separately, padded to 150 tokens, in float32 batches.

It is packed without the handlers package, and returns only labels or the text of an answer.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import transformers
from ts.torch_handler.base_handler import BaseHandler

WIDTH = 150
CLASSES = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
    "question_answering": "AutoModelForQuestionAnswering",
}

Row = tuple[torch.Tensor, torch.Tensor]


class ReferenceHandler(BaseHandler):
    """Serves a checkpoint like TorchServe's Hugging Face example."""

    def initialize(self, context: Any) -> None:
        """Load the checkpoint in float32 on the CPU."""
        folder = context.system_properties["model_dir"]
        self.mode = context.model_yaml_config["handler"]["mode"]
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        kind = getattr(transformers, CLASSES[self.mode])
        self.model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.initialized = True

    @torch.inference_mode()
    def handle(self, data: list[dict[str, Any]], context: Any) -> list[Any]:
        """Answer a batch."""
        rows = [self._tokenized(row.get("data") or row.get("body")) for row in data]
        ids, mask = rows[0]
        for more_ids, more_mask in rows[1:]:
            ids, mask = torch.cat((ids, more_ids)), torch.cat((mask, more_mask))
        outputs = self.model(ids, attention_mask=mask)
        decode = {
            "sequence_classification": self._label,
            "token_classification": self._token_labels,
            "question_answering": self._answer,
        }[self.mode]
        return [decode(ids[number], outputs, number) for number in range(len(data))]

    def _tokenized(self, content: Any) -> Row:
        text = content.decode() if isinstance(content, (bytes, bytearray)) else content
        texts = [text]
        if self.mode == "question_answering":
            document = json.loads(text)
            texts = [document["question"], document["context"]]
        row = self.tokenizer(
            *texts, padding="max_length", max_length=WIDTH, truncation=True, return_tensors="pt"
        )
        return row["input_ids"], row["attention_mask"]

    def _label(self, _ids: torch.Tensor, outputs: Any, number: int) -> str:
        return str(self.model.config.id2label[int(outputs.logits[number].argmax())])

    def _token_labels(self, ids: torch.Tensor, outputs: Any, number: int) -> list[tuple[str, str]]:
        tokens = self.tokenizer.convert_ids_to_tokens(ids.tolist())
        best = outputs.logits[number].argmax(dim=-1).tolist()
        return [
            (token, self.model.config.id2label[label])
            for token, label in zip(tokens, best, strict=True)
        ]

    def _answer(self, ids: torch.Tensor, outputs: Any, number: int) -> str:
        first = int(outputs.start_logits[number].argmax())
        last = int(outputs.end_logits[number].argmax())
        return str(self.tokenizer.decode(ids[first : last + 1]))
