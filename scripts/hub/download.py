"""Download and check the checkpoint and the adapters that a `handler` section names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.checkpoint_files import files_in
from hf_serve.handlers.checkpoints.lora_files import (
    CONFIG_FILE,
    FILES,
    LABEL_FILES,
    WEIGHTS_FILE,
    LoraFiles,
    adapter_folder,
    check_files,
    read_settings,
)
from hf_serve.handlers.checkpoints.unread_files import unread_files
from hf_serve.handlers.config.handler_section import CUSTOM_MODE, HandlerSection
from hf_serve.handlers.errors import KitError, WrongCheckpoint, WrongConfig
from hf_serve.scripts.hub.checkpoint_files import adapter_files, checkpoint_files
from hf_serve.scripts.hub.staging import Staging
from hf_serve.scripts.paths import LOCAL, REQUIREMENTS

if TYPE_CHECKING:
    # It imports huggingface_hub, which commands without a download do not need.
    from hf_serve.scripts.hub.client import Hub, Snapshot


class WriteError(KitError):
    """A file cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path} cannot be written ({error}); fix this and run the command again.")


def find_downloaded(handler: HandlerSection, target: Path) -> Source | None:
    """Return the source of a complete checkpoint that matches the config, or None."""
    return complete_source(target, handler.model_name, handler.revision)


def complete_source(target: Path, model: str | None, revision: str | None) -> Source | None:
    """Return the source of a folder that has all files of a model and revision, or None."""
    source = Source.read(target)
    matches = source and source.matches(model, revision) and source.is_complete_in(target)
    return source if matches else None


def download(handler: HandlerSection, target: Path, hub: Hub, *, force: bool = False) -> Source:
    """Download a model to a folder, replacing an existing checkpoint once complete.

    Config, labels and tokenizer are checked before any weights are downloaded.

    Raises:
        WrongConfig: the config names no model.
        WrongCheckpoint: the model does not fit the config, or the folder was not created by
            this kit.
        HubError: the hub or the model is not available.
    """
    model = _model_name(handler)
    if target.exists() and Source.read(target) is None and not force:
        raise WrongCheckpoint(
            str(target), "was not created by a script of this kit", "move it away or add --force"
        )
    snapshot = hub.snapshot(model, handler.revision)
    try:
        with Staging.open(target) as staging:
            source = _complete(handler, snapshot, hub, staging)
            source.write(staging.folder)
            staging.install()
    except OSError as error:
        raise WriteError(target, error) from None
    return source


def fetch(names: Iterable[str], snapshot: Snapshot, hub: Hub, staging: Staging) -> None:
    """Download files of a repository to a staging folder, if its disk has space for them.

    Raises:
        HubError: the hub is not available or a downloaded file is corrupt.
        InsufficientDiskSpace: there is not enough of it.
    """
    files = [snapshot.files[name] for name in names]
    staging.check_free_space(sum(file.remaining_bytes(staging.folder) for file in files))
    for file in files:
        hub.fetch(snapshot, file, staging.folder)


def source_of(
    snapshot: Snapshot, revision: str | None, names: Iterable[str], folder: Path | None = None
) -> Source:
    """Return the source of files that were downloaded.

    Args:
        folder: where files are that the repository has not: of its base, or converted.
    """
    sizes = {
        name: (folder / name).stat().st_size
        if folder and name not in snapshot.files
        else snapshot.files[name].size
        for name in sorted(names)
    }
    return Source(model_name=snapshot.model, revision=revision, commit=snapshot.commit, files=sizes)


def check_folder(handler: HandlerSection, folder: Path) -> tuple[int, int]:
    """Check a local checkpoint folder; return the total size and the number of its files.

    Raises:
        WrongCheckpoint: it does not fit the config.
    """
    names = files_in(folder)
    if handler.mode == CUSTOM_MODE:
        return sum((folder / name).stat().st_size for name in names), len(names)
    files = checkpoint_files(names, str(folder), folder.joinpath)
    required = files.configs()
    check_compatible(handler, folder)
    weights = files.weights(allow_pickle=handler.allow_pickle)
    required += [*weights, *files.shards(folder, weights)]
    return sum((folder / name).stat().st_size for name in required), len(required)


def check_compatible(handler: HandlerSection, folder: Path) -> None:
    """Check the config, tokenizer, modules, head and labels of a checkpoint against its mode.

    Code of the user's own is not run.

    Raises:
        WrongCheckpoint: a file is missing, requires custom code or does not fit.
        WrongConfig: a key of the YAML does not fit the checkpoint.
    """
    tasks.load(folder, handler.model_copy(update={"custom": None}))


def _complete(handler: HandlerSection, snapshot: Snapshot, hub: Hub, staging: Staging) -> Source:
    names, model = snapshot.files.keys(), snapshot.model

    def read(name: str) -> Path:
        fetch([name], snapshot, hub, staging)
        return staging.folder / name

    if handler.mode == CUSTOM_MODE:
        required = [name for name in names if not name.startswith(".")]
        fetch(required, snapshot, hub, staging)
        staging.keep_only(required)
        return source_of(snapshot, handler.revision, required)
    files = checkpoint_files(names, model, read)
    weights = files.weights(allow_pickle=handler.allow_pickle or files.converts_pickles)
    required = files.configs()
    fetch(required, snapshot, hub, staging)
    added = files.add_missing(staging.folder, hub)
    check_compatible(handler, staging.folder)
    fetch(weights, snapshot, hub, staging)
    shards = files.shards(staging.folder, weights)
    fetch(shards, snapshot, hub, staging)
    weights = files.converted(staging.folder, weights)
    required += [*weights, *shards]
    own_code = [each for each in (handler.custom, REQUIREMENTS) if handler.custom and each in names]
    fetch(own_code, snapshot, hub, staging)
    required += [*own_code, *added]
    staging.keep_only(required)
    source = source_of(snapshot, handler.revision, required, staging.folder)
    left_out = [] if handler.custom else unread_files(names)
    return source.model_copy(update={"left_out": left_out})


def _model_name(handler: HandlerSection) -> str:
    name = handler.model_name
    if not name:
        raise WrongConfig("handler.model_name", "is missing", "set it to a model id or a folder")
    if name.startswith(LOCAL):
        raise WrongConfig("handler.model_name", f"there is no folder {name}", "correct the path")
    return name


SOURCE_FILE = ".source.json"


class Source(BaseModel):
    """The model, the requested revision, its commit, and the size of each file.

    Attributes:
        left_out: the files of its repository with parts of the model that are not read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_name: str
    revision: str | None
    commit: str
    files: dict[str, int]
    left_out: list[str] = Field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Source | None:
        """Read the source of a folder; None if it is missing or invalid."""
        try:
            return cls.model_validate_json((folder / SOURCE_FILE).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, folder: Path) -> None:
        """Write the source file into a folder."""
        # Older versions know no other keys.
        text = self.model_dump_json(indent=2, exclude_defaults=True)
        (folder / SOURCE_FILE).write_text(f"{text}\n", encoding="utf-8")

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(self.files.values())

    def matches(self, model_name: str | None, revision: str | None) -> bool:
        """Return whether this is a model and a revision of it."""
        pinned = revision is not None and self.commit.startswith(revision)
        return self.model_name == model_name and (pinned or revision == self.revision)

    def is_complete_in(self, folder: Path) -> bool:
        """Return whether a folder contains every file with the expected size."""
        sizes = {folder / name: size for name, size in self.files.items()}
        return all(path.is_file() and path.stat().st_size == sizes[path] for path in sizes)


@dataclass(frozen=True)
class AdapterSource:
    """A repository with an adapter, and a revision of it; None for `main`."""

    model: str
    revision: str | None

    @classmethod
    def parse(cls, name: str, source: str) -> Self:
        """Read a value of `handler.adapters`, `ORG/NAME` or `ORG/NAME@REVISION`.

        Raises:
            WrongConfig: it is a path without a folder.
        """
        if source.startswith(LOCAL):
            raise WrongConfig(
                f"handler.adapters.{name}", f"there is no folder {source}", "correct the path"
            )
        model, _, revision = source.partition("@")
        return cls(model, revision or None)


def bring_adapters(
    handler: HandlerSection, checkpoint: Path, hub: Hub, *, force: bool
) -> list[Path]:
    """Download, check or find the adapters of a checkpoint; return their files.

    Adapters of the hub are put into `adapters/` in the folder of the checkpoint.

    Raises:
        KitError: one cannot be had or is not an adapter that this kit serves.
    """
    for name, source in handler.adapters.items():
        folder = adapter_folder(checkpoint, name, source)
        is_local = folder.is_dir() and Source.read(folder) is None
        if not is_local:
            _bring(AdapterSource.parse(name, source), folder, hub, force=force)
    return list(adapter_files(handler, checkpoint).values())


def _bring(adapter: AdapterSource, folder: Path, hub: Hub, *, force: bool) -> None:
    if force or not complete_source(folder, adapter.model, adapter.revision):
        _download(adapter, folder, hub)


def _download(adapter: AdapterSource, folder: Path, hub: Hub) -> None:
    """Download an adapter, replacing an existing one once complete.

    Its settings are checked before its weights are downloaded.
    """
    snapshot = hub.snapshot(adapter.model, adapter.revision)
    check_files({name: file.size for name, file in snapshot.files.items()}, adapter.model)
    try:
        with Staging.open(folder) as staging:
            fetch([CONFIG_FILE], snapshot, hub, staging)
            read_settings(staging.folder)
            labels = [name for name in LABEL_FILES if name in snapshot.files]
            fetch([WEIGHTS_FILE, *labels], snapshot, hub, staging)
            LoraFiles.read(staging.folder)
            files = (*FILES, *labels)
            staging.keep_only(files)
            source_of(snapshot, adapter.revision, files).write(staging.folder)
            staging.install()
    except OSError as error:
        raise WriteError(folder, error) from None
