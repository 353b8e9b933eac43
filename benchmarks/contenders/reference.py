"""A reference handler on TorchServe that computes what TorchServe's Hugging Face example computes.

It is a new implementation on current libraries. Unlike the example, it logs no requests, prints no
tensors and compiles nothing, which makes it faster.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import yaml

from benchmarks.contenders.torchserve import TorchServeContender
from hf_serve.handlers.config.model_config import CONFIG_FILE
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.contents import Contents
from hf_serve.scripts.archives.manifest import MANIFEST_FILE, manifest

HANDLER = Path(__file__).with_name("reference_handler.py")
TORCHSERVE = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 16, "maxBatchDelay": 1}


class Reference(TorchServeContender):
    """The reference handler with the same checkpoint.

    Args:
        mode: the task of the model.
        checkpoint: the model.
        work: folder for generated files.
    """

    precision = "float32"
    content_type: ClassVar[str] = "text/plain"

    def __init__(self, mode: str, checkpoint: Path, work: Path) -> None:
        stem = f"reference_{mode}"
        archive = work / "model_store" / f"{stem}.mar"
        super().__init__("reference", archive, work / "servers" / stem)
        self._mode, self._checkpoint = mode, checkpoint

    def pack(self) -> None:
        """Pack the archive."""
        document = json.loads(manifest(self.archive.stem, "1.0"))
        document["model"]["handler"] = HANDLER.name
        config = {**TORCHSERVE, "responseTimeout": 600, "handler": {"mode": self._mode}}
        parts: Contents = {
            **{path.name: path for path in self._checkpoint.iterdir() if path.is_file()},
            HANDLER.name: HANDLER,
            CONFIG_FILE: yaml.safe_dump(config).encode(),
            MANIFEST_FILE: json.dumps(document).encode(),
        }
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        ARCHIVE_FORMATS["mar"].write(self.archive, self.archive.stem, parts, lambda _: None)

    def body(self, inputs: Any) -> str:
        """Return the text itself, or JSON for a question and its context."""
        return inputs if isinstance(inputs, str) else json.dumps(inputs, ensure_ascii=False)
