"""A program that tries grammars with openvino-genai, with a limit of its CPU time and memory.

openvino-genai compiles a grammar within a step of all running sequences, and an error there ends
them. So each grammar is tried first in this program, with the vocabulary of the model:

    openvino_genai_trial.py write-vocabulary FOLDER
    openvino_genai_trial.py try FOLDER END_TOKEN SECONDS BYTES

The input of `write-vocabulary` is `{"tokens": ["21", …], "ends": [0]}`: the bytes of each token in
hexadecimal digits, and the ids of the end tokens. openvino-genai reads the bytes of a token from
the detokenizer of a model, so the folder gets one, and models without weights:

    openvino_detokenizer.xml
    openvino_model.xml, config.json           as many logits as the vocabulary has tokens
    other/openvino_model.xml, config.json     another number of logits

The input of `try` is a grammar, a structural tag, with which random tokens are generated. xgrammar
writes the parts of the grammar that it ignores to the standard error; the reason why it does not
compile the grammar goes to the standard output.
"""

from __future__ import annotations

import json
import math
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from runpy import run_path

import numpy as np

COMPAT = run_path(str(Path(__file__).parents[2] / "compat" / "openvino.py"))
COMPAT["disable_usage_reports"]()

import openvino
import openvino_genai
from openvino import opset13

# Errors and slow steps that depend on the text come early, or are rare.
NEW_TOKENS = 256
REFUSED, TOO_LARGE = 3, 4
# A sequence of random tokens ends where no other token is allowed.
LOGIT_OF_END = -30.0


def try_grammar(folder: str, end: str, seconds: str, memory: str) -> int:
    """Try a grammar; return the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    tokenizer = openvino_genai.Tokenizer(folder)
    threads = {"INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
    pipeline = openvino_genai.LLMPipeline(
        folder, tokenizer, "CPU", ATTENTION_BACKEND="SDPA", **threads
    )
    # The first grammar has the tables of the vocabulary built.
    _generate(pipeline, '{"type": "structural_tag", "format": {"type": "any_text"}}', end, 1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + float(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        _generate(pipeline, sys.stdin.read(), end, NEW_TOKENS)
    except MemoryError:
        return TOO_LARGE
    except Exception as error:  # noqa: BLE001 - it checks grammars in several ways
        sys.stdout.write(str(error))
        return REFUSED
    return 0


def _generate(pipeline: openvino_genai.LLMPipeline, tag: str, end: str, count: int) -> None:
    config = openvino_genai.GenerationConfig()
    config.stop_token_ids = {int(end)}
    config.max_new_tokens = count
    config.do_sample = True
    config.structured_output_config = openvino_genai.StructuredOutputConfig(
        structural_tags_config=tag
    )
    pipeline.generate(openvino.Tensor(np.zeros((1, 1), dtype=np.int64)), config)


def write_vocabulary(folder: str) -> int:
    """Write the files of a vocabulary; return the exit status."""
    content = json.loads(sys.stdin.read())
    tokens, ends = [bytes.fromhex(each) for each in content["tokens"]], content["ends"]
    _write(_detokenizer(tokens), Path(folder) / "openvino_detokenizer.xml")
    # The ids of the ends are below both numbers of logits.
    widths = {Path(folder): len(tokens), Path(folder, "other"): len(tokens) + 1}
    for path, width in widths.items():
        path.mkdir(exist_ok=True)
        _write(_constant_model(width, ends), path / "openvino_model.xml")
        (path / "config.json").write_text(json.dumps({"eos_token_id": ends[0]}), encoding="utf-8")
    return 0


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


COMMANDS: dict[str, Callable[..., int]] = {"write-vocabulary": write_vocabulary, "try": try_grammar}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
