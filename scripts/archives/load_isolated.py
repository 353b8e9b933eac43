"""Load an unpacked archive as a TorchServe worker does: `python -I load_isolated.py FOLDER TRIALS`.

Runs in an isolated interpreter with the installed packages and the folder on its path, and imports
nothing from this repository. Exits with a traceback if the model does not load. What the trials at
load have found is written to the file TRIALS.
"""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
# The beginning of the names under which setuptools makes an editable installation importable.
EDITABLE = ("__editable___transformers_on_torchserve", "__editable__.transformers_on_torchserve")


def load(folder: Path, trials: Path) -> None:
    """Import the archive's handler, initialize it on the CPU, and write what its trials found.

    Raises:
        ImportError: the handlers package was imported from outside the archive.
    """
    hide_repository()
    sys.path.insert(0, str(folder))
    manifest = json.loads((folder / "MAR-INF" / "MANIFEST.json").read_text(encoding="utf-8"))
    module = importlib.import_module(Path(manifest["model"]["handler"]).stem)
    (handler,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    loaded = handler()
    loaded.initialize(context(folder, manifest))
    require_own_handlers(folder)
    if record := getattr(getattr(loaded, "engine", None), "trial_record", None):
        trials.write_text(record.model_dump_json(), encoding="utf-8")


def hide_repository() -> None:
    """Remove this repository from the import path, where an editable installation adds it."""
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not getattr(finder, "__module__", "").startswith(EDITABLE)
    ]
    sys.path[:] = [
        entry
        for entry in sys.path
        if not entry.startswith(EDITABLE) and Path(entry).resolve() != REPOSITORY
    ]


def require_own_handlers(folder: Path) -> None:
    """Raise ImportError if a module of the handlers package was imported from another folder."""
    for name, module in sys.modules.items():
        path = module.__file__ if name.partition(".")[0] == "handlers" else None
        if path and not Path(path).resolve().is_relative_to(folder.resolve()):
            raise ImportError(f"{name} comes from {path}, not from the archive")


def context(folder: Path, manifest: dict[str, Any]) -> SimpleNamespace:
    """Return the context that a worker passes to a handler on a machine without a GPU."""
    config = (folder / manifest["model"]["configFile"]).read_text(encoding="utf-8")
    return SimpleNamespace(
        model_name=manifest["model"]["modelName"],
        manifest=manifest,
        system_properties={"model_dir": str(folder), "gpu_id": None, "batch_size": 1},
        model_yaml_config=yaml.safe_load(config),
        metrics=None,
    )


if __name__ == "__main__":
    load(Path(sys.argv[1]), Path(sys.argv[2]))
