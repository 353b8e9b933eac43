from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import write_page
from benchmarks.text_generation.contender import HangUps, Latency, Plan
from benchmarks.text_generation.table import generation_section


@pytest.fixture
def document() -> dict[str, Any]:
    line = {
        "contender": "vllm",
        "precision": "bfloat16",
        "setting": "own",
        "tokens_per_second": 412.4,
        "kit_ratio": {"median": 1.5, "low": 1.25, "high": 1.75},
        "target": 1.2,
    }
    kit = {**line, "contender": "kit", "kit_ratio": None, "target": None}
    return {
        "machine": {
            "processor": "AMD EPYC",
            "instructions": ["avx2", "avx512_bf16"],
            "cores": 2,
            "threads": 2,
            "load": 0.1,
        },
        "plan": asdict(Plan()),
        "rounds": 3,
        "yaml": "text_generation.yaml",
        "tiny": False,
        "models": {
            "qwen2": {
                "lines": [kit, line],
                "latency": asdict(Latency(20.0, 50.0, 10.0, 45.0)),
                "hang_ups": asdict(HangUps(200, 10**9, 11 * 10**8, 7, 8, 1.0, 20.0, 31.0, 21.0)),
                "contenders": {"vllm": {"failure": None}, "openvino_genai": {"failure": "Lost."}},
            }
        },
    }


def test_a_line_has_the_speed_the_ratio_and_the_target(document: dict[str, Any]) -> None:
    section = generation_section(document)
    assert "| kit | bfloat16 | own | 412 |  |  |" in section
    assert "| vllm | bfloat16 | own | 412 | 1.50 (1.25 to 1.75) | ≥ 1.2 |" in section
    assert "- openvino_genai failed: Lost." in section


def test_the_machine_and_the_model_are_described(document: dict[str, Any]) -> None:
    section = generation_section(document)
    assert section.startswith("## Text generation\n")
    assert "AMD EPYC, 2 cores (avx2, avx512_bf16)" in section
    assert "Qwen2 0.5B" in section
    assert "mean nothing" in generation_section({**document, "tiny": True})


def test_latencies_have_their_ratio_and_target(document: dict[str, Any]) -> None:
    section = generation_section(document)
    assert "| 20.0 | 50.0 | 2.5 | ≤ 3 |" in section
    assert "| 10.0 | 45.0 | 4.5 | ≤ 5 |" in section


def test_hang_ups_are_shown_before_and_after(document: dict[str, Any]) -> None:
    section = generation_section(document)
    assert "| 200 clients that hang up | before | after |" in section
    assert "| memory of the Python processes, MB | 1000 | 1100 |" in section
    assert "| threads of these processes | 7 | 8 |" in section
    assert "| texts that run |  | 1 |" in section
    document["models"]["qwen2"]["hang_ups"]["running_after"] = None
    assert "| texts that run |  | unknown |" in generation_section(document)


def test_a_contender_alone_has_neither(document: dict[str, Any]) -> None:
    document["models"]["qwen2"] |= {"latency": None, "hang_ups": None}
    section = generation_section(document)
    assert "latency of" not in section and "hang up" not in section


def test_the_page_has_the_sections_of_the_results_that_there_are(
    document: dict[str, Any], tmp_path: Path
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "generation.json").write_text(json.dumps(document), encoding="utf-8")
    assert write_page(tmp_path) == generation_section(document)
    assert (tmp_path / "RESULTS.md").read_text(encoding="utf-8") == generation_section(document)
