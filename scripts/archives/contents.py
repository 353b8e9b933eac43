"""Collect the files of an archive: checkpoint, handlers package, YAML file and manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from hf_serve.handlers.checkpoints.archive_signature import SIGNATURE, SUMS, sign, sums_of
from hf_serve.handlers.checkpoints.checkpoint_files import files_in, missing_config
from hf_serve.handlers.checkpoints.temperature_scaling import FILE as CALIBRATION
from hf_serve.handlers.checkpoints.trial_results import FILE as TRIALS
from hf_serve.handlers.config.custom_file import find
from hf_serve.handlers.config.handler_section import (
    ASSISTANT_FOLDER,
    CHECKPOINT,
    CUSTOM_FOLDER,
    CUSTOM_MODE,
    HandlerSection,
)
from hf_serve.handlers.config.model_config import CONFIG_FILE, ModelConfig
from hf_serve.handlers.errors import ConfigError, WrongCheckpoint, WrongConfig
from hf_serve.handlers.export.fidelity_report import FILE as QUALITY
from hf_serve.handlers.formats import CHOICE_FILE, Choice, check_config
from hf_serve.handlers.formats import get as get_format
from hf_serve.hosts.mar_reader import problem_of_name, problem_of_names
from hf_serve.scripts.archives.manifest import HANDLER_FILE, MANIFEST_FILE, manifest
from hf_serve.scripts.archives.serving_defaults import Values, missing_keys, with_keys, with_lines
from hf_serve.scripts.hub.checkpoint_files import ROOT_FILES, adapter_files, checkpoint_files
from hf_serve.scripts.installation import ROOT, command_line
from hf_serve.scripts.paths import (
    BUILD,
    MODELS,
    REQUIREMENTS,
    assistant_of,
    calibration_file,
    checkpoint_of,
    config_path_of,
    labelled_file,
    model_name,
)

Contents = dict[str, Path | bytes]


class WrongPlace(ConfigError):
    """A file has a name that no archive can have, or a name that another file has already."""

    def __init__(self, files: Contents, places: Iterable[str], problem: str) -> None:
        sources = ((files[place], place) for place in places)
        named = [str(each if isinstance(each, Path) else place) for each, place in sources]
        super().__init__(
            f"{' and '.join(f'{each!r:.200}' for each in named)} cannot be packed: the archive"
            f" {problem}, which no program of the kit unpacks; rename a file, or leave it out."
        )


HANDLERS = ROOT / "handlers"
LABELS = "index_to_name.json"
# Folders of an archive in which the kit has files.
RESERVED = ("handlers/", "MAR-INF/")
# Its files in the root of an archive: its code and settings, and what packing finds out.
KIT_FILES = (HANDLER_FILE, CONFIG_FILE)
FINDINGS = (TRIALS, QUALITY, CALIBRATION, CHOICE_FILE)
EXCLUDED = frozenset({"__pycache__", "tests"})


def contents(
    config_path: Path,
    version: str = "1.0",
    extra_files: Iterable[Path] = (),
    handlers: Path = HANDLERS,
    build: Path = BUILD,
    completed: tuple[ModelConfig, Values] | None = None,
) -> Contents:
    """Return the files of an archive by their path inside it, sorted.

    Extra files, and the contents of extra folders, go to the root of the archive. They may replace
    checkpoint files such as the labels, but not files of the kit. Exports are kept in `build`.

    Args:
        completed: what :func:`complete` returns for the YAML, where it is known.

    Raises:
        WrongConfig: the YAML file is invalid, or an extra file is missing or has no place.
        WrongCheckpoint: the checkpoint is missing or incomplete.
        WrongPlace: a file has a name that an archive cannot have.
    """
    config, added = completed or complete(config_path)
    check_config(config)
    # What an export of minutes does not change is checked before it.
    described, extra = manifest(model_name(config_path), version), _extra(extra_files)
    parts: Contents = {
        **_checkpoint(config_path, config, build),
        **_custom_code(config_path, config),
        **extra,
        **{f"handlers/{place}": path for place, path in _tree(handlers)},
        HANDLER_FILE: handlers / HANDLER_FILE,
        CONFIG_FILE: with_lines(config_path.read_text("utf-8"), added).encode()
        if added
        else config_path,
        MANIFEST_FILE: described,
    }
    _check_places(parts)
    return dict(sorted(parts.items()))


def complete(config_path: Path) -> tuple[ModelConfig, Values]:
    """Return the config of a YAML with the keys that it leaves out, and these keys.

    Raises:
        WrongConfig: the YAML file is invalid.
    """
    config = ModelConfig.read(config_path)
    added = missing_keys(config, checkpoint_of(config_path, config))
    return with_keys(config, added), added


def sources_of(config_path: Path) -> list[Path]:
    """Return the files and folders that an archive is made of, without the files a command names.

    What is not there is named, too: it would change the archive if it were.

    Raises:
        WrongConfig: the YAML file is invalid.
    """
    config = ModelConfig.read(config_path)
    handler = config.handler
    draft = handler.assistant
    return [
        ROOT / "handlers",
        ROOT / "scripts",
        checkpoint_of(config_path, config),
        MODELS / model_name(config_path),
        config_path_of(handler.mode),
        *map(Path, [handler.model_name or "", *handler.adapters.values()]),
        *([assistant_of(config_path, draft)] if draft else []),
        calibration_file(config_path, config),
        *([labelled] if (labelled := labelled_file(config_path, config)) else []),
        *([Path(handler.custom)] if handler.custom else []),
    ]


def with_sums(parts: Contents, signing_key: Path | None = None) -> Contents:
    """Return the files of an archive with their SHA-256 sums and, given a key, the signature.

    Raises:
        UnreadableKey: there is no key in the file.
    """
    return _signed(parts, sums_of(parts), signing_key)


def with_trials(parts: Contents, record: bytes | None, signing_key: Path | None = None) -> Contents:
    """Return the files of an archive with what the trials of its load check have found.

    Args:
        record: the content of `trials.json`; None for an archive without it.
    """
    if record is None:
        return parts
    added: Contents = {TRIALS: record}
    return _signed({**parts, **added}, sums_in(parts) + sums_of(added), signing_key)


def sums_in(parts: Contents) -> bytes:
    """Return the sums of the files of an archive, which are one of them."""
    sums = parts[SUMS]
    if not isinstance(sums, bytes):
        raise TypeError(SUMS)
    return sums


def _signed(parts: Contents, sums: bytes, signing_key: Path | None) -> Contents:
    signature = {SIGNATURE: sign(sums, signing_key)} if signing_key else {}
    return dict(sorted({**parts, SUMS: sums, **signature}.items()))


def size_of(source: Path | bytes) -> int:
    """Return the size of an archive file in bytes."""
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def requirements_of(config_path: Path) -> Path | None:
    """Return the requirements.txt of a model with its own code; None where there is none.

    Raises:
        WrongConfig: the YAML file is invalid.
    """
    config = ModelConfig.read(config_path)
    path = checkpoint_of(config_path, config) / REQUIREMENTS
    return path if config.handler.custom and path.is_file() else None


def _checkpoint(config_path: Path, config: ModelConfig, build: Path) -> dict[str, Path]:
    handler, folder = config.handler, checkpoint_of(config_path, config)
    if handler.mode == CUSTOM_MODE:
        return _all_files(config_path, handler, folder)
    # What is there is looked at before anything is exported from it.
    if config.handler.save_mode != CHECKPOINT or config.handler.dtype != "float32":
        _files(config_path, handler, folder, has_weights=True)
    export = _export(config_path, config, folder, build)
    has_weights = _needs_weights(config, export)
    parts = _files(config_path, handler, folder, has_weights=has_weights) | export
    if assistant := handler.assistant:
        draft = assistant_of(config_path, assistant)
        files = _files(config_path, assistant, draft, has_weights=True)
        parts |= {f"{ASSISTANT_FOLDER}/{name}": path for name, path in files.items()}
    return parts


def _files(
    config_path: Path, handler: HandlerSection, folder: Path, *, has_weights: bool
) -> dict[str, Path]:
    """Return the files of a checkpoint, with or without its weights."""
    require_checkpoint(config_path, folder)
    names = files_in(folder)
    files = checkpoint_files(names, str(folder), folder.joinpath)
    required = files.configs() + ([LABELS] if LABELS in names else [])
    if has_weights:
        weights = files.weights(allow_pickle=handler.allow_pickle)
        required += [*weights, *files.shards(folder, weights)]
    return {name: folder / name for name in required} | adapter_files(handler, folder)


def require_checkpoint(config_path: Path, folder: Path) -> None:
    """Check that there is a checkpoint in a folder.

    Raises:
        WrongCheckpoint: there is none, or something else.
    """
    if any((folder / name).is_file() for name in ROOT_FILES):
        return
    names = files_in(folder)
    if names:
        raise missing_config(names, str(folder), folder.joinpath)
    raise _no_checkpoint(config_path, folder)


def _no_checkpoint(config_path: Path, folder: Path) -> WrongCheckpoint:
    return WrongCheckpoint(
        str(folder),
        "there is no checkpoint in this folder",
        f"download the model with `{command_line('download', config_path)}`, or train "
        f"the demo models with `{command_line('demo-models')}`",
    )


def _export(config_path: Path, config: ModelConfig, folder: Path, build: Path) -> dict[str, Path]:
    """Return the files of an exported model, or of a checkpoint in fewer bits its quality.json."""
    handler = config.handler
    exact = handler.save_mode == CHECKPOINT and handler.dtype == "float32"
    if exact and handler.labelled is None:
        return {}
    # Imported here because torch takes seconds to import and is not needed for float32.
    from hf_serve.scripts.archives.exports import exported  # noqa: PLC0415

    return exported(config_path, config, folder, build)


def _needs_weights(config: ModelConfig, export: Mapping[str, Path]) -> bool:
    """Return whether an archive has the weights of the checkpoint in addition to an export."""
    choice = export.get(CHOICE_FILE)
    save_mode = Choice.read(choice).save_mode if choice else config.handler.save_mode
    # Importing a format imports torch, too.
    return save_mode == CHECKPOINT or get_format(save_mode).needs_weights(config)


def _all_files(config_path: Path, handler: HandlerSection, folder: Path) -> dict[str, Path]:
    """Return the files of a model that its own code loads; none where the YAML names no model.

    Raises:
        WrongCheckpoint: there are none, or one has the place of a file of the kit.
    """
    files = dict(_tree(folder))
    if not files and handler.model_name:
        raise _no_checkpoint(config_path, folder)
    taken = sorted(
        name for name in files if name.startswith(RESERVED) or name in (HANDLER_FILE, *FINDINGS)
    )
    if taken:
        raise WrongCheckpoint(
            str(folder),
            f"it has {taken[0]}, and an archive has files of the kit in that place",
            "rename it",
        )
    return files


def _custom_code(config_path: Path, config: ModelConfig) -> dict[str, Path]:
    """Return the file of the user's own code: near the YAML, or in the checkpoint.

    Raises:
        WrongConfig: it is missing.
    """
    handler = config.handler
    if handler.custom is None:
        return {}
    path = Path(handler.custom)
    if path.is_file():
        return {f"{CUSTOM_FOLDER}/{path.name}": path}
    path = find(checkpoint_of(config_path, config), handler.custom)
    return {} if handler.mode == CUSTOM_MODE else {f"{CUSTOM_FOLDER}/{path.name}": path}


def _extra(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by their place in the archive.

    Raises:
        WrongConfig: one is missing, or has the place of another one or of a file of the kit.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise WrongConfig("--extra-files", f"there is no {path}", "correct the path")
        for place, file in _tree(path) if path.is_dir() else [(path.name, path)]:
            other = found.get(place)
            if place in (*KIT_FILES, *FINDINGS) or place.startswith(RESERVED):
                raise WrongConfig(
                    "--extra-files", f"{file} has the place of a file of the kit", "rename it"
                )
            if other is not None and not other.samefile(file):
                raise WrongConfig(
                    "--extra-files",
                    f"{other} and {file} have the same place in the archive, {place}",
                    "leave one out, or rename it",
                )
            found[place] = file
    return found


def _check_places(parts: Contents) -> None:
    """Check that an archive can be unpacked on every system, as :class:`Mar` reads it.

    Raises:
        WrongPlace: a name leads elsewhere, is another one where case does not count, or a folder.
    """
    for place in parts:
        if problem := problem_of_name(place):
            raise WrongPlace(parts, [place], problem)
    if found := problem_of_names(list(parts)):
        raise WrongPlace(parts, *found)


def _tree(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative path and path of each file, without caches, tests and hidden files.

    Links to folders are followed, unless they lead to a folder that they are in.
    """
    for parent, folders, names in os.walk(folder, followlinks=True):
        place = Path(parent)
        folders[:] = [name for name in folders if _is_packed(name) and _leads_on(place / name)]
        for path in (place / name for name in names if _is_packed(name)):
            if path.is_file() and path.suffix != ".pyc":
                yield path.relative_to(folder).as_posix(), path


def _is_packed(name: str) -> bool:
    return not name.startswith(".") and name not in EXCLUDED


def _leads_on(folder: Path) -> bool:
    return not folder.parent.resolve().is_relative_to(folder.resolve())
