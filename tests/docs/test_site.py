"""The documentation site builds without a warning and needs no network."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from hf_serve.handlers.config.handler_section import modes
from hf_serve.scripts import openapi
from hf_serve.scripts.installation import ROOT

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
# Resources that a browser loads by itself; links are not among them.
LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?://[^\" >]+)")
# Links of the page of OpenAPI documents.
LISTED = re.compile(r"href=\"?(\w+\.json)")


@pytest.mark.nightly
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    openapi.write()
    done = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = list(tmp_path.rglob("index.html"))
    assert len(pages) > 12
    for page in pages:
        assert not LOADED.findall(page.read_text(encoding="utf-8")), page
    listed = LISTED.findall((tmp_path / "openapi" / "index.html").read_text(encoding="utf-8"))
    assert listed == [f"{mode}.json" for mode in sorted(modes())]
    assert all((tmp_path / "openapi" / name).is_file() for name in listed)
