"""A virtual environment whose commands use one copy of the repository, whatever is installed.

The environment that runs the tests may have the kit of another folder installed as editable. An
overlay has the same packages, and the kit of the folder that the caller chooses.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

COMMAND = """\
#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


def make_overlay(folder: Path, root: Path) -> Path:
    """Make a virtual environment for the copy in `root`, with its console commands; returns it.

    `make` takes it for installed: `make VENV=<folder>`.
    """
    venv.create(folder, symlinks=True)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # The .pth files of these folders are not read, so that no other editable installation is used.
    installed = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "kit.pth").write_text("\n".join([str(root), *installed, ""]), encoding="utf-8")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, target in project["scripts"].items():
        module, _, function = target.partition(":")
        script = folder / "bin" / name
        python = folder / "bin" / "python"
        text = COMMAND.format(python=python, module=module, function=function)
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
    (folder / ".ready").touch()
    return folder


def activated(folder: Path) -> dict[str, str]:
    """Return this process's variables, with the commands of an overlay first in PATH.

    Behind them come those of the environment that runs the tests, such as `torchserve`.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    places = [str(folder / "bin"), str(Path(sys.executable).parent), kept["PATH"]]
    return {**kept, "VENV": str(folder), "PATH": os.pathsep.join(places)}
