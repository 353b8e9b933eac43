"""The examples with other servers' clients in the documentation run against a real TorchServe.

Those with one URL run against the server in front of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.background import start_one_url
from hf_serve.scripts.serving.ports import free_ports
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


@pytest.fixture(scope="module")
def ports(server: Server) -> Iterator[dict[str, str]]:
    """The addresses of the pages, and what answers in their place."""
    one_url = start_one_url(server, free_ports().inference, BodyLimits())
    yield {
        "127.0.0.1:8080": server.inference_url.removeprefix("http://"),
        "127.0.0.1:8000": one_url.inference_url.removeprefix("http://"),
    }
    one_url.stop()


def test_every_client_example_runs(server: Server, ports: dict[str, str]) -> None:
    with gateway_to(server.inference_url) as address:
        for example in EXAMPLES:
            printed = run(example.text, {**ports, "127.0.0.1:8001": address})
            assert expected(example) in printed, (example, printed)


@pytest.mark.openvino
def test_every_example_of_openai_runs_with_the_shipped_model(ports: dict[str, str]) -> None:
    """Texts side by side, schemas and tools with the format that `save_mode: auto` is here."""
    shipped = {"predictions/text_generation/": f"predictions/{SHIPPED}/"}
    for example in EXAMPLES:
        if "from openai" in example.text:
            run(example.text, {**ports, **shipped})


def run(program: str, replaced: dict[str, str]) -> str:
    for old, new in replaced.items():
        program = program.replace(old, new)
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
