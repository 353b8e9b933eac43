"""Measure openvino-genai's continuous batching in process, one request a client at a time.

The job on stdin and the speeds on stdout are described in benchmarks/text_generation/engines.py.
`model` is a folder that optimum-intel has exported.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from typing import Any

import numpy as np
import openvino
import openvino_genai

CACHE_GB = 2
RUNNING = openvino_genai.GenerationStatus.RUNNING


def generate(
    pipeline: openvino_genai.ContinuousBatchingPipeline,
    requests: list[dict[str, Any]],
    clients: int,
) -> dict[str, float]:
    """Return the number of generated tokens, and the seconds.

    A request is added when another one ends, since `max_num_seqs` does not limit what runs at once.
    """
    start, tokens = time.perf_counter(), 0
    waiting, running = iter(enumerate(requests)), list[Any]()
    while True:
        for number, each in islice(waiting, clients - len(running)):
            running.append(pipeline.add_request(number, _tensor(each["prompt"]), _settings(each)))
        if not running:
            return {"tokens": tokens, "seconds": time.perf_counter() - start}
        pipeline.step()
        ended = [each for each in running if each.get_status() != RUNNING]
        tokens += sum(len(each.read_all()[0].generated_ids) for each in ended)
        running = [each for each in running if each.get_status() == RUNNING]


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
    clients = job["clients"]
    generate(pipeline, job["warm_up"], clients)
    found = {name: generate(pipeline, each, clients) for name, each in job["workloads"].items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
