"""A reference handler on TorchServe: the work of the example that TorchServe ships.

It runs on today's libraries, is written here from scratch and spares itself what the example adds
to the work: it logs no request, prints no tensor and compiles nothing. That is in its favour.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import yaml

from benchmarks.contenders.archived import Archived
from scripts.kit.archive_contents import Contents
from scripts.kit.archive_formats import ARCHIVE_FORMATS
from scripts.kit.manifest import CONFIG_FILE, MANIFEST_FILE, manifest

HANDLER = Path(__file__).with_name("reference_handler.py")
FRONTEND = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 16, "maxBatchDelay": 1}


class Reference(Archived):
    """The reference handler with the same checkpoint.

    Args:
        mode: what the checkpoint's head is for.
        checkpoint: the model.
        work: takes what is made on the way.
    """

    precision = "float32"
    content_type: ClassVar[str] = "text/plain"

    def __init__(self, mode: str, checkpoint: Path, work: Path) -> None:
        stem = f"reference_{mode}"
        archive = work / "model_store" / f"{stem}.mar"
        super().__init__("reference", archive, work / "servers" / stem)
        self._mode, self._checkpoint = mode, checkpoint

    def pack(self) -> None:
        """Make the archive."""
        described = json.loads(manifest(self.archive.stem, "1.0"))
        described["model"]["handler"] = HANDLER.name
        config = {**FRONTEND, "responseTimeout": 600, "handler": {"mode": self._mode}}
        parts: Contents = {
            **{path.name: path for path in self._checkpoint.iterdir() if path.is_file()},
            HANDLER.name: HANDLER,
            CONFIG_FILE: yaml.safe_dump(config).encode(),
            MANIFEST_FILE: json.dumps(described).encode(),
        }
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        ARCHIVE_FORMATS["mar"].write(self.archive, self.archive.stem, parts, lambda _: None)

    def body(self, inputs: Any) -> str:
        """Return a bare text, or JSON where there are a question and a context."""
        return inputs if isinstance(inputs, str) else json.dumps(inputs, ensure_ascii=False)
