"""The Dockerfiles: linted, made of files that exist and of the versions of pyproject.toml.

No image is built: no Docker daemon is at hand where the tests run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.scripts.installation import ROOT

DOCKERFILES = sorted((ROOT / "deploy" / "docker").glob("Dockerfile*"))
HADOLINT = Path(sys.executable).parent / "hadolint"
every_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
COPIED = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)


@every_dockerfile
def test_the_linter_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run(
        [HADOLINT, "--failure-threshold", "style", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@every_dockerfile
def test_what_is_copied_exists_and_is_sent_to_the_builder(path: Path) -> None:
    sent = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    names = [name for line in COPIED.findall(path.read_text("utf-8")) for name in line.split()]
    assert names
    for name in names:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in sent, name


@every_dockerfile
def test_versions_are_those_of_the_locks(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.search(r"pip install -r requirements/server\.txt ", text)
    assert "pip install --no-deps -r requirements/openvino-no-deps.txt" in text
    assert "==" not in text.replace("'^torch==", "")


@every_dockerfile
def test_the_user_is_that_of_the_manifests(path: Path) -> None:
    deployment = ROOT / "deploy/kubernetes/torchserve/base/deployment.yaml"
    (user,) = re.findall(r"^USER (\d+)$", path.read_text("utf-8"), re.MULTILINE)
    assert f"runAsUser: {user}" in deployment.read_text("utf-8")
