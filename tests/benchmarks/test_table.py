from __future__ import annotations

from typing import Any

import pytest

from benchmarks.table import markdown, results_page

LINE: dict[str, Any] = {
    "contender": "kit_openvino",
    "precision": "bfloat16",
    "clients": 32,
    "rows_per_second": 180.04,
    "p50_ms": 170.0,
    "p90_ms": 181.25,
    "p99_ms": 190.0,
    "errors": 2,
    "against": {"reference": {"median": 19.5, "low": 19.0, "high": 20.25}},
    "share_of_engine": {"median": 0.9, "low": 0.88, "high": 0.91},
    "over_engine_ms": None,
    "share_of_peak": 0.44,
}
START: dict[str, Any] = {
    "contender": "kit_openvino",
    "archive_seconds": 31.26,
    "archive_bytes": 220_000_000,
    "first_answer_seconds": 12.5,
    "worker_bytes": 1_100_000_000,
    "engine_rows_per_second": 200.0,
    "engine_p50_ms": 18.2,
    "engine_padding_share": 0.04,
}

SCALING = {"times": 1, "tokens": 30.0, "rows_per_second": 100.0, "tokens_per_second": 3000.0}


@pytest.fixture
def document() -> dict[str, Any]:
    return {
        "model": "a model",
        "machine": {
            "processor": "A processor",
            "cores": 2,
            "instructions": ["avx2"],
            "load": 0.1,
            "gemm_tflops": {"float32": 0.32, "bfloat16": 2.05},
        },
        "plan": {"rounds": 3, "rows": 256, "seconds": 8.0, "warm": 2.0, "clients": [32]},
        "modes": {
            "sequence_classification": {
                "tokens": {"least": 8, "median": 26.0, "mean": 31.2, "most": 128},
                "flops_per_row": 5.36e9,
                "lines": [LINE],
                "starts": [START],
                "contenders": {
                    "litserve": {"failure": "It did not start."},
                    "kit_openvino": {"failure": None},
                },
                "scaling": [SCALING],
            }
        },
    }


def test_a_table_has_a_header_a_separator_and_a_line_per_row() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_the_page_contains_all_results(document: dict[str, Any]) -> None:
    page = results_page(document)
    assert (
        "| kit_openvino | bfloat16 | 32 | 180.0 | 170.0 | 181.2 | 190.0 | 2"
        " | 19.50 (19.00 to 20.25) |  | 0.90 (0.88 to 0.91) |  | 44% |\n"
    ) in page
    assert "| kit_openvino | 31.3 | 220 | 12.5 | 1100 | 200.0 | 18.2 | 4% |\n" in page
    assert "| 1× | 30 | 100.0 | 3000 |\n" in page
    assert "A processor, 2 cores (avx2)" in page and "bfloat16 2.05" in page


def test_the_page_lists_failed_contenders_with_the_reason(document: dict[str, Any]) -> None:
    assert "- litserve failed: It did not start.\n" in results_page(document)
    assert "kit_openvino failed" not in results_page(document)


def test_empty_sections_have_no_heading(document: dict[str, Any]) -> None:
    document["modes"]["sequence_classification"]["scaling"] = []
    assert "### Scaling" not in results_page(document)
