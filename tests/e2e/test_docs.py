"""The examples with other servers' clients in the documentation run against a real TorchServe."""

from __future__ import annotations

import os
import subprocess

import pytest

from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.server import Server
from tests.docs.pages import DOCS, Block, blocks_of
from tests.e2e.clients import PYTHON, SECONDS, UNSET
from tests.e2e.conftest import SHIPPED
from tests.e2e.gateway import gateway_to

PAGES = (ROOT / "README.md", DOCS / "protocols.md")
EXAMPLES = [block for page in PAGES for block in blocks_of(page) if block.language == "python"]
# What each library's example prints.
PRINTED = {
    "huggingface_hub": "label='POSITIVE'",
    "httpx": "POSITIVE",
    "openai": " ",
    "anthropic": " ",
    "kserve": "{'predictions': [{'label': 'POSITIVE'",
    "tritonclient": "'label': 'POSITIVE'",
}


def test_every_client_example_runs(server: Server) -> None:
    with gateway_to(server.inference_url) as address:
        for example in EXAMPLES:
            text = example.text.replace("127.0.0.1:8080", f"127.0.0.1:{server.ports.inference}")
            printed = run(text.replace("127.0.0.1:8001", address))
            assert expected(example) in printed, (example, printed)


@pytest.mark.openvino
def test_every_example_of_openai_runs_with_the_shipped_model(server: Server) -> None:
    """Texts side by side, schemas and tools with the format that `save_mode: auto` is here."""
    address = f"127.0.0.1:{server.ports.inference}"
    for example in EXAMPLES:
        if "from openai" in example.text:
            text = example.text.replace("127.0.0.1:8080", address)
            run(text.replace("predictions/text_generation/", f"predictions/{SHIPPED}/"))


def run(program: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    done = subprocess.run(
        [PYTHON, "-c", program],
        env={**kept, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def expected(example: Block) -> str:
    return next(shown for library, shown in PRINTED.items() if library in example.text)
