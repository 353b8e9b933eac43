"""A program that generates a text with a grammar, with a limit of its CPU time and memory.

openvino-genai compiles a grammar within a step of all running texts, and an error there ends them.
So each grammar is tried here before, with the vocabulary of the model and random tokens.

The grammar, a structural tag, is the input. The arguments are the folder of the vocabulary, see
:mod:`openvino_genai_vocabulary`, the end token, seconds and bytes. What xgrammar ignores is a
warning on the standard error; the reason why it does not compile the grammar is the standard
output.
"""

from __future__ import annotations

import math
import resource
import sys

import numpy as np
import openvino
import openvino_genai

# Errors and slow steps that depend on the text come early, or are rare.
NEW_TOKENS = 256
REFUSED, TOO_LARGE = 3, 4


def main(folder: str, end: str, seconds: str, memory: str) -> int:
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
