"""The Python executable of the environment with vLLM, which `make test-vllm` makes."""

from __future__ import annotations

from scripts.paths import ROOT

VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
