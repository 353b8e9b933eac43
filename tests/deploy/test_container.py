"""The container's command on a read-only root, as a user without rights.

There is no container here: a mount namespace has the root read-only, and folders in memory where
the manifests mount them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import Ports, free_ports
from hf_serve.scripts.serving.processes import end_group, group_members, started_at
from hf_serve.scripts.serving.properties import read_properties, write_properties
from hf_serve.scripts.serving.readiness import wait_until_ready
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import java_home
from tests.samples import INPUTS

pytestmark = pytest.mark.nightly

MODE = "sequence_classification"
CONFIG = ROOT / "deploy" / "kubernetes" / "torchserve" / "base" / "config.properties"
USER = "10001"
# Python may be installed in a folder of root; a container has it where every user reads it.
READS_ALL = "+dac_read_search"
AS_USER = [
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"),
    *(f"--inh-caps={READS_ALL}", f"--ambient-caps={READS_ALL}"),
]
READ_ONLY = f"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /tmp
mount -t tmpfs -o mode=0755,uid={USER},gid={USER} tmpfs "$HOME"
mount -o remount,bind,ro /
cd "$HOME"
touch /read-only 2> /dev/null && exit 3
exec "$@"
"""
COMMAND = ["torchserve", "--start", "--foreground", "--ncs", "--ts-config"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder outside of /tmp, which is another one for the server."""
    made = Path(tempfile.mkdtemp(prefix="container-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def server(packed: Callable[..., Path], folder: Path) -> Iterator[Server]:
    for name in ("models", "home"):
        (folder / name).mkdir()
    archive = packed("pretrained", MODE)
    shutil.copy(archive, folder / "models")
    ports = free_ports()
    settings = folder / "config.properties"
    write_properties(settings, _settings(folder, ports))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    command = ["unshare", "--mount", "bash", "-c", READ_ONLY, "container", *AS_USER, *COMMAND]
    with (folder / "console.log").open("wb") as output:
        process = subprocess.Popen(
            [*command, str(settings)],
            env=_environment(folder / "home"),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    models = {archive.stem: archive.name}
    started = started_at(process.pid) or 0.0
    running = Server(process.pid, started, models, ports, folder, folder / "scratch")
    try:
        wait_until_ready(running, 120, lambda _name, _seconds: None)
        yield running
    finally:
        end_group(process.pid)


def _settings(folder: Path, ports: Ports) -> dict[str, str]:
    settings = read_properties(CONFIG)
    vmargs = re.sub(r"=\S+log4j2\.xml", f"={ROOT / 'log4j2.xml'}", settings["vmargs"])
    own = {"model_store": str(folder / "models"), "vmargs": vmargs}
    return {**settings, **ports.properties(), **own}


def _environment(home: Path) -> dict[str, str]:
    """Return the variables of the Dockerfile."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
        "JAVA_HOME": str(java_home()),
        "HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LOG_LOCATION": str(home / "logs"),
        "METRICS_LOCATION": str(home / "logs"),
    }


def test_a_model_answers(server: Server) -> None:
    (model,) = server.models
    url = f"{server.inference_url}/predictions/{model}"
    answer = httpx.post(url, json={"inputs": INPUTS[MODE][0]}, timeout=60, trust_env=False)
    assert answer.status_code == 200
    assert answer.json()[0]["label"]


def test_its_processes_have_the_user_of_the_manifests(server: Server) -> None:
    users = {
        process.uids().effective
        for process in group_members(server.pid)
        if process.name() in ("java", "python", "python3.11")
    }
    assert users == {int(USER)}
