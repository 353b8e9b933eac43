"""Compare explanations per second of this kit over HTTP and of a plain Captum loop.

    python benchmarks/explanations.py

This kit serves 16 clients. The plain loop follows the Captum tutorials: one request at a time,
float32, 50 steps of LayerIntegratedGradients over the word embeddings. The two alternate for
several rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import torch
import typer
from captum.attr import LayerIntegratedGradients
from scipy.stats import spearmanr
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.machine import machine
from benchmarks.models import bert_base, write_yaml
from benchmarks.texts import mixed_texts
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe

CLIENTS = 16
STEPS = 50
RESULTS = ROOT / "benchmarks" / "results" / "explanations.json"

Values = list[list[float]]


class PlainLoop:
    """Explain one request at a time, as in a notebook."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        embeddings = self.model.get_input_embeddings()
        self.captum = LayerIntegratedGradients(self._logits, embeddings)

    def explain(self, text: str) -> tuple[int, list[float]]:
        """Return the predicted class and the attribution of each token."""
        batch = self.tokenizer(text, return_tensors="pt", truncation=True, max_length=128)
        ids = batch["input_ids"]
        baseline = torch.full_like(ids, self.tokenizer.pad_token_id)
        baseline[0, 0], baseline[0, -1] = ids[0, 0], ids[0, -1]
        target = int(self._logits(ids, batch["attention_mask"]).argmax())
        found = self.captum.attribute(
            ids, baseline, target, (batch["attention_mask"],), n_steps=STEPS
        )
        return target, torch.as_tensor(found).sum(-1)[0].tolist()

    def _logits(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.model(input_ids=ids, attention_mask=mask).logits)


def run_plain_loop(loop: PlainLoop, texts: list[str]) -> tuple[float, list[int], Values]:
    """Return explanations per second of the plain loop, the classes and the attributions."""
    start = time.perf_counter()
    found = [loop.explain(text) for text in texts]
    speed = len(texts) / (time.perf_counter() - start)
    return speed, [target for target, _ in found], [values for _, values in found]


def run_over_http(
    server: Server, model: str, texts: list[str], targets: list[int]
) -> tuple[float, list[dict[str, Any]]]:
    """Return explanations per second at 16 clients, and the responses.

    The classes of the plain loop are requested, because another dtype may break ties differently.
    """
    url = f"{server.inference_url}/explanations/{model}"

    def explain(text: str, target: int) -> dict[str, Any]:
        body = {"inputs": text, "parameters": {"target": target}}
        answer = httpx.post(url, json=body, timeout=600, trust_env=False)
        return dict(answer.raise_for_status().json())

    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        answers = list(threads.map(explain, texts, targets))
    return len(texts) / (time.perf_counter() - start), answers


def correlation(one: Values, other: Values) -> float:
    """Return the mean Spearman rank correlation of the attributions of each text."""
    pairs = zip(one, other, strict=True)
    return statistics.fmean(float(spearmanr(first, second).statistic) for first, second in pairs)


def main(rounds: int = 2, texts: int = 32, dtype: str = "auto") -> None:
    """Measure, print and write `benchmarks/results/explanations.json`."""
    folder = bert_base(BUILD / "benchmarks" / "bert_base")
    config = write_yaml(BUILD / "benchmarks" / "explained.yaml", folder, dtype=dtype)
    store = BUILD / "benchmarks" / "model_store"
    pack(config, export_path=store, checked=False)
    loop = PlainLoop(folder)
    sent = mixed_texts(loop.tokenizer, texts)
    speeds: dict[str, list[float]] = {"plain loop": [], "this kit": []}
    with TorchServe(
        BUILD / "benchmarks" / "server", store, {"explained": "explained.mar"}
    ) as server:
        run_over_http(server, "explained", sent[:CLIENTS], [0] * CLIENTS)
        run_plain_loop(loop, sent[:1])
        for _ in range(rounds):
            speed, targets, plain = run_plain_loop(loop, sent)
            speeds["plain loop"].append(speed)
            speed, answers = run_over_http(server, "explained", sent, targets)
            speeds["this kit"].append(speed)
    ours = [answer["attributions"] for answer in answers]
    ratios = [kit / plain for plain, kit in zip(*speeds.values(), strict=True)]
    result = {
        "machine": machine(),
        "dtype": dtype,
        "clients": CLIENTS,
        "explanations_per_second": speeds,
        "ratio": {"median": statistics.median(ratios), "all": ratios},
        "rank_correlation": correlation(plain, ours),
        "converged": sum(answer["converged"] for answer in answers) / len(answers),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    typer.run(main)
