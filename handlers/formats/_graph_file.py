"""The file of an exported model, and the formats whose graph torch itself runs."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import torch

from handlers.checkpoints.dtypes import pick_dtype
from handlers.checkpoints.model_spec import ModelSpec
from handlers.errors import WrongCheckpoint, summarize
from handlers.export.manifest import ExportManifest, Shape, Signature
from handlers.formats._graph import GraphModel
from handlers.formats.base import BaseFormat
from handlers.runtime.model import Model

logger = logging.getLogger(__name__)


def graph_file(directory: Path, name: str, pattern: str | None = None) -> Path:
    """Return the exported model in a folder: the first that fits the pattern, by default the name.

    Raises:
        WrongCheckpoint: there is none.
    """
    path = min(directory.glob(pattern or name), default=None)
    if path is None:
        raise WrongCheckpoint(
            name, "is not there", "pack it with scripts/create_archive.py, which makes it"
        )
    return path


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Say in one sentence that a file cannot be loaded, whatever its reader raises.

    Raises:
        WrongCheckpoint: the block failed.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a broken file raises whatever its reader does
        raise WrongCheckpoint(
            name, f"cannot be loaded ({summarize(error)})", "export it again"
        ) from None


class TorchGraphFormat(BaseFormat):
    """A format whose graph torch itself runs, with its manifest beside it.

    Attributes:
        file: the name of the graph's file.
        pattern: which names load: others than the kit's own exporters write, too.
    """

    file: ClassVar[str]
    pattern: ClassVar[str]

    @abstractmethod
    def read_graph(self, path: Path, device: torch.device) -> torch.nn.Module:
        """Read a graph from its file."""

    def load(self, spec: ModelSpec) -> Model:
        path = graph_file(spec.directory, self.file, self.pattern)
        manifest = ExportManifest.read(spec.directory, spec.outputs)
        warn_about_dtype(spec, manifest.dtype, path.name)
        with loading(path.name):
            graph = self.read_graph(path, spec.device)
        return GraphModel(graph, manifest.signature, spec.device)

    def write_manifest(
        self, folder: Path, signature: Signature, dtype: torch.dtype, shape: Shape | None = None
    ) -> None:
        """Write the manifest of a graph."""
        ExportManifest(signature, _name(dtype), shape).write(folder)


def warn_about_dtype(spec: ModelSpec, packed: str | None, name: str) -> None:
    """Warn where `dtype: auto` chose another dtype when the graph was packed than it would here.

    Nothing is known of a graph whose manifest has no dtype.
    """
    if spec.config.handler.dtype != "auto" or packed is None:
        return
    best = _name(pick_dtype("auto", spec.device))
    if packed != best:
        logger.warning(
            "%s computes in %s, which dtype: auto chose where it was packed, and this machine would"
            " be best with %s; pack it again here, or name a dtype in its YAML and pack it again",
            name,
            packed,
            best,
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
