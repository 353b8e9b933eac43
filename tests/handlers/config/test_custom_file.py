"""The file of `handler.custom` is read, and not run, to find out what it defines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.handlers.config.custom_file import defines_inference_code

ELIFS = "\n".join(f"elif x == {number}: y = 1" for number in range(1500))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def predict_fn(data, model): ...", True),
        ("match 1:\n    case 1:\n        def predict_fn(data, model): ...", True),
        ("def preprocess(request):\n    predict_fn = None", False),
        (f"if x: y = 1\n{ELIFS}\nelse:\n    def predict_fn(data, model): ...", True),
        (f"x = {'+'.join('1' * 20_000)}", False),
        (f"x = {'-' * 100_000}1", False),
        ("no python", False),
    ],
    ids=["function", "case", "local", "many branches", "long sum", "deep", "wrong"],
)
def test_a_file_defines_inference_code(code: str, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(code, encoding="utf-8")
    assert defines_inference_code(path) is expected
