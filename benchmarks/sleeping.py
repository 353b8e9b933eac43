"""An archive whose model takes a while: its engine sleeps before each batch of predictions."""

from __future__ import annotations

import shutil
from pathlib import Path

from hf_serve.scripts.archives.contents import HANDLERS
from hf_serve.scripts.archives.packing import pack

BEGIN = "        steps = PredictionSteps(\n"


def pack_sleeping(config: Path, store: Path, scratch: Path, seconds: float) -> Path:
    """Pack the model of a YAML; each batch then takes so many seconds longer."""
    handlers = scratch / "handlers"
    shutil.copytree(HANDLERS, handlers, ignore=shutil.ignore_patterns("__pycache__"))
    engine = (handlers / "engine.py").read_text(encoding="utf-8")
    sleep = f'        __import__("time").sleep({seconds} if requests else 0)\n'
    place = engine.index(BEGIN)
    changed = engine[:place] + sleep + engine[place:]
    (handlers / "engine.py").write_text(changed, encoding="utf-8")
    return pack(config, export_path=store, handlers=handlers, checked=False).path
