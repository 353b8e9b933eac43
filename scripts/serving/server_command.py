"""The command line and environment of the TorchServe Java process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

from scripts.paths import ROOT
from scripts.serving.openmp import openmp_environment

# Variables not passed on: workers would import from PYTHONPATH before their archive, and the others
# take precedence over the settings file.
DROPPED = frozenset({"PYTHONPATH", "TS_CONFIG_FILE", "LOG_LOCATION", "METRICS_LOCATION"})
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
LOGGING, JSON_LOGGING = ROOT / "log4j2.xml", ROOT / "log4j2-json.xml"
# The variables that name a locale, the first one that is set.
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
ASCII_LOCALES = ("C", "POSIX")
CONSOLE = b'<AppenderRef ref="STDOUT"/>'


def server_command(
    java: Path,
    settings: Path,
    scratch: Path,
    vmargs: str,
    *,
    console: bool,
    log_config: Path = LOGGING,
    python: Path | str = sys.executable,
) -> list[str]:
    """Return the command that starts TorchServe.

    Args:
        java: the Java home.
        settings: the config.properties file.
        scratch: the temporary folder for unpacked archives and sockets.
        vmargs: options of the Java virtual machine.
        console: whether to log to the console as well as to files.
        log_config: the log settings.
        python: the program that starts workers.
    """
    home = Path(str(distribution("torchserve").locate_file("")))
    frontend = home / "ts" / "frontend"
    logging = log_config if console else _files_only(log_config, scratch)
    return [
        str(java / "bin" / "java"),
        *vmargs.split(),
        f"-Dlog4j.configurationFile={logging}",
        f"-Dmodel_server_home={home}",
        f"-Djava.io.tmpdir={scratch}",
        *("-cp", str(frontend / "*"), "org.pytorch.serve.ModelServer"),
        *("--python", str(python)),
        *("-f", str(settings)),
        "-ncs",
    ]


def server_environment(logs: Path, models: int) -> dict[str, str]:
    """Return the environment of the server and its workers.

    It adds offline mode, OpenMP settings and log folders to the caller's variables, which take
    precedence over the first two. A locale without letters other than ASCII gets them.
    """
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    folders = {"LOG_LOCATION": str(logs), "METRICS_LOCATION": str(logs)}
    return {
        **OFFLINE,
        **openmp_environment(models, kept),
        **kept,
        "PATH": path,
        **folders,
        **_locale(kept),
    }


def _locale(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a locale in which Java finds files whose names are not ASCII, where it has none."""
    own = next((value for name in LOCALE if (value := environment.get(name))), "C")
    return {"LC_ALL": "C.UTF-8"} if own in ASCII_LOCALES else {}


def _files_only(log_config: Path, scratch: Path) -> Path:
    """Write log settings without the console appender, whose file is never rotated."""
    path = scratch / log_config.name
    path.write_bytes(log_config.read_bytes().replace(CONSOLE, b""))
    return path
