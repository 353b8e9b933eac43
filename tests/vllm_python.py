"""The Python executable of the environment with vLLM, which `make test-vllm` makes."""

from __future__ import annotations

from hf_serve.scripts.installation import ROOT

VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
