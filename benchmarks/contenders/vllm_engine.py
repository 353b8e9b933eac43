"""Measure vLLM in process: all requests of a workload at once, in its own scheduler.

It runs in a separate virtual environment and imports nothing from this repository. The job on stdin
and the speeds on stdout are described in benchmarks/text_generation/engines.py.
"""

import json
import sys
import time
from typing import Any

from vllm import LLM, SamplingParams, TokensPrompt


def generate(llm: LLM, requests: list[dict[str, Any]]) -> dict[str, float]:
    """Return the number of generated tokens, and the seconds."""
    prompts = [TokensPrompt(prompt_token_ids=each["prompt"]) for each in requests]
    settings = [_sampling(each) for each in requests]
    start = time.perf_counter()
    outputs = llm.generate(prompts, settings, use_tqdm=False)
    seconds = time.perf_counter() - start
    return {"tokens": sum(len(each.outputs[0].token_ids) for each in outputs), "seconds": seconds}


def _sampling(request: dict[str, Any]) -> SamplingParams:
    return SamplingParams(
        max_tokens=request["new_tokens"],
        ignore_eos=True,
        temperature=request["temperature"] or 0.0,
        seed=request["seed"],
        detokenize=False,
    )


def main() -> None:
    """Run the job from stdin."""
    job = json.load(sys.stdin)
    llm = LLM(
        job["model"],
        dtype="bfloat16",
        max_num_seqs=job["clients"],
        max_model_len=job["longest"],
        skip_tokenizer_init=True,
    )
    generate(llm, job["warm_up"])
    print(json.dumps({name: generate(llm, each) for name, each in job["workloads"].items()}))


if __name__ == "__main__":
    main()
