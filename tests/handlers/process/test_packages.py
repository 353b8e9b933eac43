from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.process.packages import require_package
from tests.sentences import refused

ROOT = Path(__file__).resolve().parents[3]
EXPORT = """
import logging
from hf_serve.handlers.process.packages import require_package
from hf_serve.handlers.process.packages import silence_exporters

with silence_exporters():
    require_package("optimum.intel.openvino", "save_mode: openvino", "pip install")
    logging.getLogger("nncf").info_once("unheard")
print({name: logging.getLogger(name).level for name in ("optimum", "nncf", "openvino")})
"""


def test_a_missing_package_is_reported_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    with refused(WrongConfig, "quantization: int8", "nncf", "pip install nncf"):
        require_package("nncf", "handler.quantization: int8", "pip install nncf")


@pytest.mark.nightly
@pytest.mark.openvino
def test_libraries_are_silent_even_if_they_set_their_log_level_at_import() -> None:
    command = [sys.executable, "-c", EXPORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(
        dict.fromkeys(("optimum", "nncf", "openvino"), logging.ERROR)
    )
    assert "unheard" not in done.stdout + done.stderr
