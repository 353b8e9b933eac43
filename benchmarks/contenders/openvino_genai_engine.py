"""Measure openvino-genai's continuous batching in process, at most as many requests as clients.

The job on stdin and the speeds on stdout are described in benchmarks/text_generation/engines.py.
`model` is a folder that optimum-intel has exported.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai

CACHE_GB = 2


def generate(
    pipeline: openvino_genai.ContinuousBatchingPipeline, requests: list[dict[str, Any]]
) -> dict[str, float]:
    """Return the number of generated tokens, and the seconds."""
    start = time.perf_counter()
    handles = [
        pipeline.add_request(number, _tensor(each["prompt"]), _settings(each))
        for number, each in enumerate(requests)
    ]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    tokens = sum(len(handle.read_all()[0].generated_ids) for handle in handles)
    return {"tokens": tokens, "seconds": time.perf_counter() - start}


def _tensor(prompt: list[int]) -> openvino.Tensor:
    return openvino.Tensor(np.array([prompt], dtype=np.int64))


def _settings(request: dict[str, Any]) -> openvino_genai.GenerationConfig:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = request["new_tokens"]
    # Without an end token its config is refused.
    config.set_eos_token_id(0)
    config.ignore_eos = True
    config.do_sample = request["temperature"] is not None
    if config.do_sample:
        config.temperature, config.rng_seed = request["temperature"], request["seed"]
    return config


def main() -> None:
    """Run the job from stdin."""
    job = json.load(sys.stdin)
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs, scheduler.cache_size = job["clients"], CACHE_GB
    properties = {"INFERENCE_PRECISION_HINT": "bf16"}
    pipeline = openvino_genai.ContinuousBatchingPipeline(job["model"], scheduler, "CPU", properties)
    generate(pipeline, job["warm_up"])
    found = {name: generate(pipeline, each) for name, each in job["workloads"].items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
