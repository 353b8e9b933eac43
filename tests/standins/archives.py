"""Archives without a model: handlers of a few lines, and the files that they are packed from."""

from __future__ import annotations

import json
from pathlib import Path

from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.contents import with_sums
from hf_serve.scripts.archives.manifest import manifest
from hf_serve.scripts.archives.model_store import split

ECHO = """
import os, sys

class Echo:
    def initialize(self, context):
        self.folder = context.system_properties["model_dir"]

    def handle(self, data, context):
        seen = {"folder": self.folder, "path": sys.path, "offline": os.environ["HF_HUB_OFFLINE"]}
        return [seen for _ in data]
"""

BROKEN = """
class Broken:
    def initialize(self, context):
        raise ValueError("handler.mode is 'ner'; did you mean 'token_classification'?")

    def handle(self, data, context):
        return data
"""

KILLED = """
import os, signal

class Killed:
    def initialize(self, context):
        os.kill(os.getpid(), signal.SIGKILL)

    def handle(self, data, context):
        return data
"""

SLOW = """
import signal

class Slow:
    def initialize(self, context):
        signal.pause()

    def handle(self, data, context):
        return data
"""

ENTRY = """
import handlers

class TransformersHandler:
    def initialize(self, context):
        handlers.load(context)
"""


def write_archive(
    store: Path, stem: str, handler: str, yaml: str = "", *, key: Path | None = None
) -> Path:
    """Write a .mar whose handler is given as its source, and more lines of its YAML.

    Its name can have a version, `NAME@VERSION`. With a key it has sums and a signature.
    """
    path = store / f"{stem}.mar"
    name, version = split(stem)
    parts: dict[str, Path | bytes] = {
        "MAR-INF/MANIFEST.json": manifest(name, version or "1.0"),
        "model-config.yaml": f"minWorkers: 1\nmaxWorkers: 1\n{yaml}".encode(),
        "transformers_handler.py": handler.encode(),
    }
    ARCHIVE_FORMATS["mar"].write(
        path, name, with_sums(parts, key) if key else parts, lambda _: None
    )
    return path


def write_handlers(folder: Path, load: str = "pass") -> Path:
    """Write a handlers package that runs the statement `load` when a model is loaded."""
    for place in ("__pycache__", "tests", "tasks"):
        (folder / place).mkdir(parents=True)
        (folder / place / "question_answering.py").touch()
    (folder / "__pycache__" / "__init__.cpython-311.pyc").touch()
    (folder / ".hidden.py").touch()
    (folder / "__init__.py").write_text(f"def load(context):\n    {load}\n")
    (folder / "transformers_handler.py").write_text(ENTRY)
    return folder


def write_weightless(folder: Path) -> Path:
    """Write a checkpoint's files, almost empty, and files that are not packed."""
    folder.mkdir()
    needed = "config.json", "tokenizer.json", "tokenizer_config.json", "index_to_name.json"
    clutter = ".source.json", "score.json", "optimizer.pt", "pytorch_model.bin", "README.md"
    for name in (*needed, *clutter):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def write_yaml(path: Path, checkpoint: Path, **handler: object) -> Path:
    """Write a YAML (JSON is YAML) for a checkpoint folder."""
    given = {"mode": "question_answering", "model_name": str(checkpoint), **handler}
    path.write_text(json.dumps({"handler": given}))
    return path
