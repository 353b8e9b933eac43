"""What goes into an archive: the checkpoint, the handlers package, the YAML and the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from handlers.config.model_config import ModelConfig
from handlers.errors import WrongCheckpoint, WrongConfig
from handlers.formats import check_config
from scripts.kit.checkpoint_files import config_files, shard_files, weights_file
from scripts.kit.manifest import CONFIG_FILE, HANDLER_FILE, MANIFEST_FILE, manifest
from scripts.kit.places import ROOT, checkpoint_of, model_name

Contents = dict[str, Path | bytes]

HANDLERS = ROOT / "handlers"
LABELS = "index_to_name.json"
LEFT_OUT = frozenset({"__pycache__", "tests"})


def contents(
    config_path: Path,
    version: str = "1.0",
    extra_files: Iterable[Path] = (),
    handlers: Path = HANDLERS,
) -> Contents:
    """Return every file of a YAML's archive by its name there, sorted.

    Extra files go to the root; so do the contents of an extra folder. They may replace files of
    the checkpoint, such as its labels, but none of the handler's.

    Raises:
        WrongConfig: when the YAML is wrong or an extra file is missing.
        WrongCheckpoint: when its checkpoint is missing or not whole.
    """
    config = ModelConfig.read(config_path)
    check_config(config)
    parts: Contents = {
        **_checkpoint(config_path, config),
        **_extra(extra_files),
        **{f"handlers/{place}": path for place, path in _tree(handlers)},
        HANDLER_FILE: handlers / HANDLER_FILE,
        CONFIG_FILE: config_path,
        MANIFEST_FILE: manifest(model_name(config_path), version),
    }
    return dict(sorted(parts.items()))


def size_of(source: Path | bytes) -> int:
    """Return the bytes of one file of an archive."""
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def _checkpoint(config_path: Path, config: ModelConfig) -> dict[str, Path]:
    folder = checkpoint_of(config_path, config)
    if not (folder / "config.json").is_file():
        raise WrongCheckpoint(
            str(folder),
            "there is no checkpoint",
            f"get the model with `python scripts/download_models.py {config_path}`, or make the "
            "demo models with `python scripts/make_demo_models.py`",
        )
    names = {path.name for path in folder.iterdir() if path.is_file()}
    needed = config_files(names, str(folder)) + ([LABELS] if LABELS in names else [])
    export = _export(config_path, config, folder)
    if not export:
        weights = weights_file(names, str(folder), allow_pickle=config.handler.allow_pickle)
        needed += [weights, *shard_files(folder / weights, names, str(folder))]
    return {name: folder / name for name in needed} | export


def _export(config_path: Path, config: ModelConfig, folder: Path) -> dict[str, Path]:
    """Return the files of an exported model; none where the format is the checkpoint itself."""
    if not config.handler.is_exported:
        return {}
    # Torch takes seconds to import, and a checkpoint as it is does without.
    from scripts.kit.exports import exported  # noqa: PLC0415

    return exported(config_path, config, folder)


def _extra(paths: Iterable[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise WrongConfig("--extra-files", f"there is no {path}", "mend the path")
        found |= dict(_tree(path)) if path.is_dir() else {path.name: path}
    return found


def _tree(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file under a folder with its place in it; no caches, tests or hidden files."""
    for path in folder.rglob("*"):
        place = path.relative_to(folder)
        hidden = any(part.startswith(".") or part in LEFT_OUT for part in place.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            yield place.as_posix(), path
