"""What openvino-genai and xgrammar print, in a process: it comes from C++."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.compat.xgrammar import error_reason, ignored_part
from hf_serve.handlers.generation.backends import openvino_genai

END, CPU_SECONDS, MEMORY = "0", "20", str(8 * 2**30)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    tokens = ["", *[f"{byte:02x}" for byte in range(256)]]
    command = [sys.executable, "-P", str(openvino_genai.TRIAL), "write-vocabulary", str(folder)]
    content = json.dumps({"tokens": tokens, "ends": [0]})
    subprocess.run(command, input=content.encode(), check=True)
    return folder


def tried(vocabulary: Path, schema: Any) -> subprocess.CompletedProcess[str]:
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema}}
    command = [
        *(sys.executable, "-P", str(openvino_genai.TRIAL), "try", str(vocabulary)),
        *(END, CPU_SECONDS, MEMORY),
    ]
    return subprocess.run(
        command, input=json.dumps(tag), capture_output=True, text=True, check=False
    )


@pytest.mark.openvino
def test_a_warning_says_what_is_ignored(vocabulary: Path) -> None:
    done = tried(vocabulary, {"type": "string", "pattern": "^a$b"})
    assert "It is ignored" in ignored_part(done.stderr)
    assert ignored_part("another line") == ""


@pytest.mark.openvino
def test_an_error_has_no_place_in_a_source(vocabulary: Path) -> None:
    done = tried(vocabulary, {"type": "string", "pattern": "(a"})
    assert done.returncode == openvino_genai.REFUSED
    assert ".cc:" in done.stdout
    found = error_reason(done.stdout)
    assert found and ".cc:" not in found
