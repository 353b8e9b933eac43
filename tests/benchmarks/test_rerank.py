"""Run the benchmark of rerankers with tiny models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reranking.models import QUERY_TOKENS, queries, reranker
from benchmarks.reranking.table import reranking_section
from hf_serve.demo_models.minilm import load_tokenizer
from hf_serve.scripts.installation import ROOT
from tests.serving import Served


def test_pairs_have_the_number_of_tokens_and_are_scored_by_the_modules(tmp_path: Path) -> None:
    tokenizer = load_tokenizer()
    ((query, texts),) = queries(tokenizer, 128, 1, 2)
    assert [len(tokenizer(query, text)["input_ids"]) for text in texts] == [128, 128]
    assert len(query.split()) == QUERY_TOKENS
    model = Served(reranker("ettin_17m", tmp_path, smoke=True), "sentence_ranking")
    assert len(model.ask({"query": query, "texts": texts})) == 2


def test_the_table_has_a_column_for_each_length() -> None:
    found = {"kit_float32": {"pairs_per_second": [10.0, 30.0, 20.0], "failure": None}}
    failed = {"vllm": {"pairs_per_second": [], "failure": "no GPU"}}
    document = {
        "machine": {"processor": "a CPU"},
        "tiny": False,
        "models": {"bert_base": {"128": {**found, **failed}, "512": found}},
    }
    section = reranking_section(document)
    assert "| Contender | 128 tokens | 512 tokens |" in section
    assert "| kit_float32 | 20 | 20 |" in section
    assert "| vllm | – | – |" in section


@pytest.mark.nightly
def test_a_trial_run_measures_the_kit_and_writes_the_results(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.rerank", "--smoke", "--model", "ettin_17m"]
    command += ["--only", "kit_float32,kit_openvino", "--work", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "smoke" / "results" / "rerank.json").read_text())
    for found in document["models"]["ettin_17m"].values():
        assert all(each["pairs_per_second"][0] > 0 for each in found.values())
    assert "| kit_openvino |" in (tmp_path / "smoke" / "RESULTS.md").read_text(encoding="utf-8")
