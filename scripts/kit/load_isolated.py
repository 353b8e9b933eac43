"""Load an unpacked archive as a TorchServe worker does: `python -I bare_load.py FOLDER`.

Run alone in an interpreter that knows the installed packages and the folder, and nothing of this
repository; it imports nothing of it. It ends with a traceback when the model does not load.
"""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml


def load(folder: Path) -> None:
    """Import a folder's handler and initialize it on the CPU.

    Raises:
        ImportError: when the handlers package was taken from elsewhere.
    """
    sys.path.insert(0, str(folder))
    manifest = json.loads((folder / "MAR-INF" / "MANIFEST.json").read_text(encoding="utf-8"))
    module = importlib.import_module(Path(manifest["model"]["handler"]).stem)
    (handler,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    handler().initialize(context(folder, manifest))
    require_own_handlers(folder)


def require_own_handlers(folder: Path) -> None:
    """Make sure that no module of the handlers package came from outside a folder."""
    for name, module in sys.modules.items():
        place = module.__file__ if name.partition(".")[0] == "handlers" else None
        if place and not Path(place).resolve().is_relative_to(folder.resolve()):
            raise ImportError(f"{name} comes from {place}, not from the archive")


def context(folder: Path, manifest: dict[str, Any]) -> SimpleNamespace:
    """Return what a worker passes to a handler, on a machine without a GPU."""
    config = (folder / manifest["model"]["configFile"]).read_text(encoding="utf-8")
    return SimpleNamespace(
        model_name=manifest["model"]["modelName"],
        manifest=manifest,
        system_properties={"model_dir": str(folder), "gpu_id": None, "batch_size": 1},
        model_yaml_config=yaml.safe_load(config),
        metrics=None,
    )


if __name__ == "__main__":
    load(Path(sys.argv[1]))
