"""Measure `generate` of transformers in process, in static batches.

    python transformers_engine.py DTYPE BATCH_SIZE

A batch runs until its longest request is complete; only the tokens that are asked for are counted.
No batch starts after the job's seconds. The job on stdin and the speeds on stdout are described in
benchmarks/text_generation/engines.py.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, PreTrainedModel


class RowTemperatures(LogitsProcessor):
    """Divides the logits of each row by a temperature of its own."""

    def __init__(self, temperatures: list[float]) -> None:
        self._temperatures = torch.tensor(temperatures)[:, None]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores / self._temperatures


def generate(
    model: PreTrainedModel, requests: list[dict[str, Any]], batch: int, limit: float
) -> dict[str, float]:
    """Return the number of tokens that were asked for, and the seconds."""
    tokens, start = 0, time.perf_counter()
    for first in range(0, len(requests), batch):
        if time.perf_counter() - start > limit:
            break
        chosen = requests[first : first + batch]
        _run(model, chosen)
        tokens += sum(each["new_tokens"] for each in chosen)
    return {"tokens": tokens, "seconds": time.perf_counter() - start}


def _run(model: PreTrainedModel, requests: list[dict[str, Any]]) -> None:
    longest = max(len(each["prompt"]) for each in requests)
    ids = torch.zeros(len(requests), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, each in enumerate(requests):
        ids[row, -len(each["prompt"]) :] = torch.tensor(each["prompt"])
        mask[row, -len(each["prompt"]) :] = 1
    new_tokens = max(each["new_tokens"] for each in requests)
    found = model.generate(
        ids, attention_mask=mask, max_new_tokens=new_tokens, **_sampling(requests)
    )
    if found.shape[1] != longest + new_tokens:
        raise RuntimeError(f"{found.shape[1] - longest} tokens were generated, not {new_tokens}")


def _sampling(requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the arguments of `generate`; a batch has one seed, that of its first request."""
    if requests[0]["temperature"] is None:
        return {"do_sample": False}
    torch.manual_seed(requests[0]["seed"])
    temperatures = RowTemperatures([each["temperature"] for each in requests])
    return {"do_sample": True, "top_k": 0, "logits_processor": [temperatures]}


def main(dtype: str, batch: str) -> None:
    """Run the job from stdin."""
    job = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=getattr(torch, dtype)).eval()
    generate(model, job["warm_up"], int(batch), job["seconds"] / 4)
    found = {
        name: generate(model, each, int(batch), job["seconds"])
        for name, each in job["workloads"].items()
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
