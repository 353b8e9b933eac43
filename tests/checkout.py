"""A copy of the repository, in which tests follow pages literally."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import MODELS
from hf_serve.scripts.serving.ports import Ports, free_ports


def copy_repository(target: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    shutil.copytree(MODELS, target / MODELS.relative_to(ROOT), copy_function=os.link)


def use_free_ports(copy: Path) -> Ports:
    """Let the copy's server listen on free ports, and return them."""
    ports = free_ports()
    path = copy / "config.properties"
    settings = path.read_text(encoding="utf-8")
    for key, value in ports.properties().items():
        settings = re.sub(rf"^{key}=.*$", f"{key}={value}", settings, flags=re.MULTILINE)
    path.write_text(settings, encoding="utf-8")
    return ports


def environment_of(scratch: Path, copy: Path, hub: str) -> dict[str, str]:
    """Return the variables of an environment in which the copy is installed."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"TMPDIR": str(scratch), "TEMP": str(scratch), "PYTHONPATH": str(copy)}
    venv = {"VENV": str(Path(sys.prefix)), "MAKEFLAGS": f"VENV={sys.prefix}"}
    online = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    # `make serve` starts one URL at this port.
    ports = {"URL_PORT": str(free_ports().inference)}
    return {**online, **places, **ports, **venv, "PATH": tools, "HF_ENDPOINT": hub}
