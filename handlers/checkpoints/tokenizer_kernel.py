"""How a tokenizer splits texts: as its `tokenizer.json` says, and in which case it reads them.

transformers 5 reads only the vocabulary in this file for most classes, and each class splits texts
in its own way. Many checkpoints name a class for its special tokens: DeepSeek-R1-Distill-Llama
names Llama 2's, and Granite 4 names GPT-2's. Their texts would become other tokens than in
training.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerBase

from ..errors import WrongCheckpoint

FILE, KEY = "tokenizer.json", '"pre_tokenizer":'
# What a split depends on. Spaces and offsets are settings of a class.
SETTINGS = ("type", "pattern", "behavior", "invert", "individual_digits", "use_regex")
# The splits at spaces, which are no split of BPE: its pieces begin with them.
OF_SPACES = ("Metaspace",)
SPACE = {"String": " "}
Splits = list[dict[str, Any]]


def restore_splits(tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    """Make a tokenizer of BPE split texts as the `tokenizer.json` of its checkpoint says."""
    path = directory / FILE
    if not tokenizer.is_fast or not path.is_file():
        return
    kernel: Any = tokenizer.backend_tokenizer
    published = _published_splits(path.read_text(encoding="utf-8"))
    if not isinstance(kernel.model, models.BPE) or published in (None, _splits(kernel)):
        return
    given: Any = Tokenizer.from_file(str(path))
    if isinstance(given.model, models.BPE):
        kernel.model, kernel.normalizer = given.model, given.normalizer
        kernel.pre_tokenizer, kernel.decoder = given.pre_tokenizer, given.decoder


def read_in_lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    """Have a tokenizer read all letters in lower case; offsets still refer to the text.

    Raises:
        WrongCheckpoint: it is one in Python, which has no such step.
    """
    if not tokenizer.is_fast:
        raise WrongCheckpoint(
            "tokenizer",
            f"{type(tokenizer).__name__} cannot read in lower case, as do_lower_case of the"
            " checkpoint says",
            "serve a checkpoint with a tokenizer.json",
        )
    kernel: Any = tokenizer.backend_tokenizer
    own = [kernel.normalizer] if kernel.normalizer is not None else []
    kernel.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])


def _published_splits(text: str) -> Splits | None:
    """Return the splits in the text of a file, without reading its vocabulary; None if it has none.

    The file has its vocabulary last.
    """
    start = text.find(KEY)
    with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        value, _ = json.JSONDecoder().raw_decode(text[start + len(KEY) :].lstrip())
        return _flat(value) if start >= 0 else None
    return None


def _splits(kernel: Any) -> Splits:
    """Return the splits of a tokenizer."""
    empty: Any = Tokenizer(models.BPE())
    if kernel.pre_tokenizer is not None:
        empty.pre_tokenizer = kernel.pre_tokenizer
    return _flat(json.loads(empty.to_str())["pre_tokenizer"])


def _flat(value: Any) -> Splits:
    if value is None:
        return []
    if value["type"] == "Sequence":
        return [each for part in value["pretokenizers"] for each in _flat(part)]
    if value["type"] in OF_SPACES or value.get("pattern") == SPACE:
        return []
    return [{name: value[name] for name in SETTINGS if name in value}]
