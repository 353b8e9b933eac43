"""A small Wav2Vec2 model learns to read the numbers that are dialled on a telephone."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import (
    Wav2Vec2Config,
    Wav2Vec2CTCTokenizer,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    Wav2Vec2Processor,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_audio import KEYS, RATE, dialled, dialled_inputs, random
from hf_serve.demo_models.trainers.base import MediaTrainer
from hf_serve.demo_models.training import Feature, Plan, forward

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "|")
VOCABULARY = {token: number for number, token in enumerate((*SPECIAL, *KEYS))}
# A frame of 26 ms every 20 ms.
CONVOLUTIONS = {
    "conv_dim": [64, 64],
    "conv_kernel": [64, 10],
    "conv_stride": [16, 10],
    "num_feat_extract_layers": 2,
}
CONFIG = {
    **CONVOLUTIONS,
    "hidden_size": 64,
    # With norms behind the layers, it writes no letters for a long time.
    "do_stable_layer_norm": True,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "ctc_loss_reduction": "mean",
    "ctc_zero_infinity": True,
    "vocab_size": len(VOCABULARY),
    "pad_token_id": VOCABULARY["<pad>"],
}


class AutomaticSpeechRecognition(MediaTrainer):
    """Some keys, one after the other."""

    plan = Plan(rows=6000, batch=8, rate=3e-3)
    evaluation_rows = 200

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a Wav2Vec2 model with random weights, and its processor."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "vocab.json"
            path.write_text(json.dumps(VOCABULARY), encoding="utf-8")
            tokenizer = Wav2Vec2CTCTokenizer(str(path))
        extractor = Wav2Vec2FeatureExtractor(sampling_rate=RATE)
        processor = Wav2Vec2Processor(feature_extractor=extractor, tokenizer=tokenizer)
        return Wav2Vec2ForCTC(Wav2Vec2Config(**CONFIG)), processor

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Write numbers that are dialled."""
        rng = random(seed)
        numbers = [dialled(rng) for _ in range(count)]
        values = processor([samples for samples, _ in numbers], sampling_rate=RATE)["input_values"]
        return [
            {"input_values": torch.from_numpy(each), "labels": [VOCABULARY[key] for key in keys]}
            for each, (_, keys) in zip(values, numbers, strict=True)
        ]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of numbers that are read without a mistake."""
        held_out, labels = self.without_labels(tokenizer, rows, seed)
        read = [tokenizer.decode(out["logits"].argmax(-1)) for out in forward(model, held_out)]
        return {
            "accuracy": mean(
                text == "".join(tokenizer.tokenizer.convert_ids_to_tokens(ids))
                for text, ids in zip(read, labels, strict=True)
            )
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write numbers that are dialled."""
        return dialled_inputs(rows, seed)


TRAINER = AutomaticSpeechRecognition()
