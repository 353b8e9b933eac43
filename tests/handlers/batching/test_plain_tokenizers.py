"""Tokenizers in Python, without character offsets: ESM, BERTweet, ByT5 and CANINE."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import PreTrainedTokenizerBase

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.types.request import Request
from tests import families
from tests.sentences import refused
from tests.serving import Served, explanation_of

TEXT, OTHER = "MKTAYIAK", "GAVLIMKTAYIAKQRQ"


def byt5(folder: Path) -> PreTrainedTokenizerBase:
    return transformers.ByT5Tokenizer()


def canine(folder: Path) -> PreTrainedTokenizerBase:
    return transformers.CanineTokenizer()


def esm(folder: Path) -> PreTrainedTokenizerBase:
    special = ["<cls>", "<pad>", "<eos>", "<unk>"]
    (folder / "vocab.txt").write_text("\n".join([*special, *"LAGVSERTIDPKQNFYMHWC", "<mask>"]))
    return transformers.EsmTokenizer(str(folder / "vocab.txt"))


def bertweet(folder: Path) -> PreTrainedTokenizerBase:
    words = ["M", "K", "T", "A", "Y", "I", "G", "V", "L", "Q", "R"]
    lines = [f"{word}{end} 1" for word in words for end in ("@@", "")]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n")
    (folder / "bpe.codes").write_text("A Y</w> 1\n")
    files = (str(folder / "vocab.txt"), str(folder / "bpe.codes"))
    return transformers.BertweetTokenizer(*files)


# The families of models that have these tokenizers, and a mode for each.
MAKERS: dict[str, tuple[str, Callable[[Path], PreTrainedTokenizerBase]]] = {
    "byt5": ("t5", byt5),
    "canine": ("canine", canine),
    "esm": ("esm", esm),
    "bertweet": ("roberta", bertweet),
}


def write(folder: Path, kind: str, mode: str, **config: Any) -> PreTrainedTokenizerBase:
    family, make = MAKERS[kind]
    folder.mkdir()
    tokenizer = make(folder)
    values: dict[str, Any] = {}
    if kind != "canine":
        values["vocab_size"] = max(len(tokenizer), 400)
    values["pad_token_id"] = tokenizer.pad_token_id
    values["eos_token_id"] = tokenizer.eos_token_id or 2
    families.module(family, mode, **values, **config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def expected_scores(folder: Path, tokenizer: PreTrainedTokenizerBase, *texts: Any) -> list[float]:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    logits = model(**tokenizer(*texts, return_tensors="pt"))["logits"]
    return [float(score) for score in logits.softmax(-1)[0]]


@pytest.mark.parametrize("kind", MAKERS)
def test_texts_and_pairs_are_classified(kind: str, tmp_path: Path) -> None:
    mode, folder = "sequence_classification", tmp_path / "model"
    tokenizer = write(folder, kind, mode)
    model = Served(folder, mode)
    for inputs, texts in ((TEXT, [TEXT]), ({"text": TEXT, "text_pair": OTHER}, [TEXT, OTHER])):
        found = {each["label"]: each["score"] for each in model.ask(inputs, top_k=None)}
        expected = expected_scores(folder, tokenizer, *texts)
        assert [found["LABEL_0"], found["LABEL_1"]] == pytest.approx(expected, abs=1e-4)
    long = model.ask(OTHER * 60)
    assert long[0]["score"] > 0
    ((status, _),) = model.post(explanation_of({"inputs": TEXT}))
    assert status == 422


def test_a_pair_that_is_too_long_is_cut_at_its_one_side(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, "esm", "sequence_classification", num_labels=1)
    model = Served(folder, "sentence_ranking")
    texts = [OTHER, TEXT, OTHER * 200]
    ranking = model.ask({"query": TEXT, "texts": texts})
    assert sorted(each["index"] for each in ranking) == [0, 1, 2]
    status, _ = model.refuse({"query": TEXT, "texts": texts}, truncate=False)
    assert status == 413


def test_a_text_is_written_and_its_tokens_are_listed(tmp_path: Path) -> None:
    mode, folder = "text2text_generation", tmp_path / "model"
    write(folder, "byt5", mode)
    engine = Served(folder, mode).engine
    (answer,) = engine.predict([Request(TEXT, {"max_new_tokens": 5})])
    assert not isinstance(answer, Exception)
    (tokens,) = engine.tokenize([Request("Ay", {})])
    assert not isinstance(tokens, Exception)
    assert (tokens.offsets, list(tokens.names)) == (None, ["A", "y", "</s>"])


@pytest.mark.parametrize("mode", ["token_classification", "question_answering"])
def test_modes_that_name_characters_need_offsets(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write(folder, "esm", "token_classification")
    if mode == "question_answering":
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = None
        config["model_type"] = "roberta"
        (folder / "config.json").write_text(json.dumps(config))
    with refused(WrongCheckpoint, "EsmTokenizer", mode):
        Served(folder, mode)
