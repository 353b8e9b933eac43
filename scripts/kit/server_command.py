"""The command line and the environment of TorchServe's Java process."""

from __future__ import annotations

import os
import sys
from importlib.metadata import distribution
from pathlib import Path

from scripts.kit.openmp import openmp_environment
from scripts.kit.places import ROOT

# A variable of the caller's that would change what runs: workers import from PYTHONPATH before
# they look into their archive, and the others come before the settings file.
DROPPED = frozenset({"PYTHONPATH", "TS_CONFIG_FILE", "LOG_LOCATION", "METRICS_LOCATION"})
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
LOGGING = ROOT / "log4j2.xml"
CONSOLE = b'<AppenderRef ref="STDOUT"/>'


def server_command(
    java: Path, settings: Path, scratch: Path, vmargs: str, *, console: bool
) -> list[str]:
    """Return the command that starts TorchServe; `scratch` takes what it unpacks and its sockets.

    Its log goes to files only, unless `console`.
    """
    home = Path(str(distribution("torchserve").locate_file("")))
    frontend = home / "ts" / "frontend"
    logging = LOGGING if console else _files_only(scratch)
    return [
        str(java / "bin" / "java"),
        *vmargs.split(),
        f"-Dlog4j.configurationFile={logging}",
        f"-Dmodel_server_home={home}",
        f"-Djava.io.tmpdir={scratch}",
        *("-cp", str(frontend / "*"), "org.pytorch.serve.ModelServer"),
        *("--python", sys.executable),
        *("-f", str(settings)),
        "-ncs",
    ]


def server_environment(logs: Path, models: int) -> dict[str, str]:
    """Return the variables of the server and its workers: the caller's, offline, logs in a folder.

    What a caller set itself stays as it is.
    """
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    places = {"LOG_LOCATION": str(logs), "METRICS_LOCATION": str(logs)}
    return {**OFFLINE, **openmp_environment(models, kept), **kept, "PATH": path, **places}


def _files_only(scratch: Path) -> Path:
    """Write the log settings without the console, which nothing would ever rotate."""
    path = scratch / LOGGING.name
    path.write_bytes(LOGGING.read_bytes().replace(CONSOLE, b""))
    return path
