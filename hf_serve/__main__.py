"""`python -m hf_serve` is the command `hf-serve`."""

from __future__ import annotations

from hf_serve.scripts.verbs import app

if __name__ == "__main__":
    app(prog_name="hf-serve")
