"""What the Python processes of vLLM run when they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.handlers.generation.backends.vllm import ENVIRONMENT

pytestmark = pytest.mark.nightly

# As torchvision does without its compiled library.
TORCHVISION = """
import torch
for name in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{name}")(lambda *given: given)
"""


def test_another_module_of_that_name_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('prepared')", encoding="utf-8")
    path = os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(tmp_path)])
    program = [sys.executable, "-P", "-c", "import sitecustomize; print(sitecustomize.NAME)"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(program, env=environment, capture_output=True, check=True)
    assert done.stdout.split() == [b"prepared", b"torchvision"]


@pytest.mark.parametrize(("path", "works"), [(ENVIRONMENT["PYTHONPATH"], True), ("", False)])
def test_torchvision_is_imported_without_its_compiled_library(
    tmp_path: Path, path: str, works: bool
) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(TORCHVISION, encoding="utf-8")
    (tmp_path / "torchvision" / "_C.so").write_bytes(b"for another device")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(tmp_path)]))}
    program = [sys.executable, "-P", "-c", "import torchvision"]
    done = subprocess.run(program, env=environment, capture_output=True, check=False)
    assert (done.returncode == 0) == works, done.stderr.decode()
    assert works or b"torchvision::nms does not exist" in done.stderr
