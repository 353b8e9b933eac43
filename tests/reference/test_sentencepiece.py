from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints.tokenizer_files import has_sentencepiece_only, read_tokenizer

LINES = Path(__file__).with_name("sentencepiece.jsonl").read_text(encoding="utf-8").splitlines()
PARTS: list[dict[str, Any]] = list(map(json.loads, LINES))


def write(folder: Path, part: dict[str, Any]) -> Path:
    """Write the tokenizer files of a part of the reference."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in part["files"].items():
        (folder / name).write_bytes(base64.b64decode(content))
    for name, document in part["documents"].items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part['class']}-{part['kind']}")
def test_tokens_are_those_of_the_slow_tokenizers_of_transformers_4(
    part: dict[str, Any], tmp_path: Path
) -> None:
    folder = write(tmp_path, part)
    assert has_sentencepiece_only(folder)
    tokenizer = read_tokenizer(folder, {})
    found = [[text, tokenizer(text)["input_ids"]] for text, _ in part["rows"]]
    assert found == part["rows"]
    encoding = tokenizer("Nina sings", return_offsets_mapping=True)
    assert max(end for _, end in encoding["offset_mapping"]) == len("Nina sings")
    assert tokenizer.decode(encoding["input_ids"], skip_special_tokens=True) == "Nina sings"
