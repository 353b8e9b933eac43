"""Start a fork server together with TorchServe, or with the server at one URL."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hf_serve.handlers.process.resources import available_cores
from hf_serve.hosts.fork_server import boot
from hf_serve.hosts.fork_server.messages import SEPARATOR

KIT_PACKAGE = Path(__file__).resolve().parents[2] / "handlers"
BOOT, LAUNCHER = (Path(__file__).with_name(name) for name in ("boot.py", "launcher.py"))

# `off` has each worker import its packages itself.
VARIABLE = "FORK_SERVER"
LOG_FILE = "fork_server.log"
PYTHON, SOCKET, KIT = "python", "fork.sock", "kit"

# What is not packed either, and compiled modules that another process writes at the moment.
NOT_COPIED = shutil.ignore_patterns(".*", "tests", "*.pyc.*")
# Modules of other packages. Most time is in torch, transformers and captum. Not here:
# - `ts`, whose modules read variables that TorchServe sets for each worker;
# - onnxruntime, which starts a thread when it is imported;
# - what only some formats need, such as openvino.
# The load checks of `hf-serve pack` import those that most models need.
COMMON_PACKAGES = (
    "yaml",
    "numpy",
    "torch",
    "pydantic.json_schema",
    "psutil",
    "PIL.Image",
    "jinja2",
    "safetensors.torch",
    "tokenizers",
    "transformers.modeling_utils",
    "transformers.generation.utils",
    "transformers.generation.continuous_batching",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.processing_auto",
)
PACKAGES = (
    *COMMON_PACKAGES,
    "pydantic.type_adapter",
    "httpx",
    # The architectures that most small models have.
    "transformers.models.align",
    "transformers.models.bert.modeling_bert",
    "transformers.models.bert.tokenization_bert",
    "transformers.models.deberta_v2.modeling_deberta_v2",
    "transformers.models.distilbert.modeling_distilbert",
    "transformers.models.modernbert.modeling_modernbert",
    "transformers.models.mpnet.modeling_mpnet",
    "transformers.models.roberta.modeling_roberta",
    "transformers.models.xlm_roberta.modeling_xlm_roberta",
    "transformers.models.mbart.tokenization_mbart",
    "transformers.models.mbart50.tokenization_mbart50",
    "transformers.models.nllb.tokenization_nllb",
    "transformers.utils.sentencepiece_model_pb2_new",
    "captum.attr",
    "llguidance.hf",
)

# Modules of the kit, for archives with the same. `.*` is for all modules of a package.
KIT_MODULES = (
    "handlers.compat.torchserve",
    "handlers.explainers.*",
    "handlers.explainers.targets.*",
    "handlers.formats.pretrained",
    "handlers.protocols.*",
    "handlers.process.ranks",
    "handlers.process.threads",
    "handlers.telemetry.tracing",
    "handlers.torchserve.*",
    "handlers.worker_start",
)
MODULES = PACKAGES + KIT_MODULES
# What model processes of the server at one URL import besides.
SERVER_MODULES = (
    "multidict",
    "prometheus_client",
    "python_multipart",
    "starlette.middleware.cors",
    "typer",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.httptools_impl",
    "hf_serve.hosts.asgi.in_process",
    "hf_serve.hosts.asgi.model_process",
    "hf_serve.hosts.asgi.server",
)


@dataclass(frozen=True)
class ForkServer:
    """A fork server to start.

    Attributes:
        folder: for its socket and its launcher; its path must be short.
        package: the `handlers` of the kit, which it imports for archives with the same; None
            without.
        slots: how many workers load their models at the same time.
    """

    folder: Path
    log: Path
    modules: Sequence[str] = MODULES
    package: Path | None = KIT_PACKAGE
    slots: int = field(default_factory=available_cores)

    @property
    def python(self) -> Path:
        """The program that starts a worker."""
        return self.folder / PYTHON

    def write_launcher(self) -> bool:
        """Write the launcher; return whether it can be executed, which a disk may forbid."""
        start = [sys.executable, "-IS", str(LAUNCHER), str(self.folder / SOCKET)]
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join(start)} "$@"\n', encoding="utf-8")
        self.python.chmod(0o700)
        return os.access(self.python, os.X_OK)

    def command(self, program: Sequence[str]) -> list[str]:
        """Return the command that starts a program with the server."""
        return [sys.executable, "-IS", str(BOOT), *self._options(), *program]

    def start(self) -> None:
        """Start the server as a child of this process, which has one thread."""
        boot.start_server(*self._options())

    def _options(self) -> list[str]:
        """Return the arguments of :func:`boot.start_server`.

        The server imports a copy of the kit, which nobody changes while it runs.
        """
        kit = self.folder / KIT
        if self.package:
            # With compiled modules, which are found by the time of their source.
            shutil.copytree(self.package, kit / self.package.name, ignore=NOT_COPIED)
        names = SEPARATOR.join(self.modules)
        return [*map(str, (self.folder / SOCKET, self.log, self.slots, kit, names))]


def is_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether servers of this machine have a fork server: on Linux, unless it is off."""
    return sys.platform == "linux" and environment.get(VARIABLE, "on") != "off"
