"""A program that writes the vocabulary of a model for openvino-genai, which xgrammar needs.

openvino-genai reads the bytes of each token from the detokenizer beside a model. The program writes
one, and models without weights, with which grammars are tried and forgotten:

    openvino_detokenizer.xml
    openvino_model.xml, config.json           as many logits as the vocabulary has tokens
    other/openvino_model.xml, config.json     another number of logits

The argument is the folder; the input is `{"tokens": ["21", …], "ends": [0]}`, with the bytes of
each token in hexadecimal digits and the ids of the tokens that end a text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from runpy import run_path

import numpy as np
import openvino
from openvino import opset13

COMPAT = run_path(str(Path(__file__).parents[2] / "compat" / "openvino.py"))
# A text of random tokens ends where nothing else is possible.
LOGIT_OF_END = -30.0


def main(folder: str) -> None:
    """Write the files."""
    content = json.loads(sys.stdin.read())
    tokens, ends = [bytes.fromhex(each) for each in content["tokens"]], content["ends"]
    _write(_detokenizer(tokens), Path(folder) / "openvino_detokenizer.xml")
    # The ids of the ends are below both numbers of logits.
    widths = {Path(folder): len(tokens), Path(folder, "other"): len(tokens) + 1}
    for path, width in widths.items():
        path.mkdir(exist_ok=True)
        _write(_constant_model(width, ends), path / "openvino_model.xml")
        (path / "config.json").write_text(json.dumps({"eos_token_id": ends[0]}), encoding="utf-8")


def _write(model: openvino.Model, path: Path) -> None:
    openvino.save_model(model, path, compress_to_fp16=False)


def _detokenizer(tokens: Sequence[bytes]) -> openvino.Model:
    places = np.cumsum([0, *map(len, tokens)], dtype=np.int32)
    characters = np.frombuffer(b"".join(tokens), dtype=np.uint8)
    ids = opset13.parameter([-1, -1], np.int64)
    inputs = [
        opset13.convert(ids, "i32"),
        *(opset13.constant(each) for each in (places[:-1], places[1:], characters)),
    ]
    create = COMPAT["tokenizer_operation"]()
    pieces = create(
        "VocabDecoder", [each.output(0) for each in inputs], {"skip_tokens": []}
    ).outputs()
    joined = create("FuzeRagged", pieces[:4], {}).outputs()
    texts = create("StringTensorPack", [*joined, pieces[4]], {}).outputs()
    return openvino.Model(texts, [ids], "detokenizer")


def _constant_model(width: int, ends: Sequence[int]) -> openvino.Model:
    """Return a model whose logits depend on nothing: all tokens but the ends are equally likely."""
    ranks = {"input_ids": 2, "attention_mask": 2, "position_ids": 2, "beam_idx": 1}
    inputs = {
        name: opset13.parameter([-1] * rank, np.int32 if rank == 1 else np.int64)
        for name, rank in ranks.items()
    }
    for name, each in inputs.items():
        each.output(0).get_tensor().set_names({name})
    logits = np.zeros((1, 1, width), dtype=np.float32)
    logits[..., ends] = LOGIT_OF_END
    length = opset13.constant(np.array([width], dtype=np.int64))
    shape = opset13.concat([opset13.shape_of(inputs["input_ids"]), length], 0)
    outputs = opset13.broadcast(opset13.constant(logits), shape, "BIDIRECTIONAL").outputs()
    outputs[0].get_tensor().set_names({"logits"})
    return openvino.Model(outputs, list(inputs.values()), "constant")


if __name__ == "__main__":
    main(*sys.argv[1:])
