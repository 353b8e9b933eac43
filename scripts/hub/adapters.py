"""Download the LoRA adapters that a YAML names, and check them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from handlers.checkpoints.lora import (
    CONFIG_FILE,
    FILES,
    WEIGHTS_FILE,
    LoraFiles,
    adapter_folder,
    check_files,
    read_settings,
)
from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongConfig
from scripts.hub.checkpoint_files import adapter_files
from scripts.hub.checkpoint_source import Source
from scripts.hub.client import Hub
from scripts.hub.download import WriteError, complete_source, fetch, source_of
from scripts.hub.staging import Staging
from scripts.paths import LOCAL


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

    Those of the hub are put into `adapters/` in the folder of the checkpoint.

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
            fetch([WEIGHTS_FILE], snapshot, hub, staging)
            LoraFiles.read(staging.folder)
            staging.keep_only(FILES)
            source_of(snapshot, adapter.revision, FILES).write(staging.folder)
            staging.install()
    except OSError as error:
        raise WriteError(folder, error) from None
