"""From a YAML's `handler` section to a checkpoint on this disk: whole, checked, or not at all."""

from __future__ import annotations

from pathlib import Path

from handlers.config.handler_section import HandlerSection
from handlers.errors import KitError, WrongCheckpoint, WrongConfig
from scripts.kit.checkpoint_files import config_files, shard_files, weights_file
from scripts.kit.checkpoint_source import Source
from scripts.kit.hub import Hub, Snapshot
from scripts.kit.staging import Staging


class CannotWrite(KitError):
    """The disk refuses a file."""

    def __init__(self, place: Path, error: OSError) -> None:
        super().__init__(f"{place} cannot be written ({error}); mend that and run again.")


def find_downloaded(handler: HandlerSection, target: Path) -> Source | None:
    """Return the source of a checkpoint that is whole and is what the YAML names; else None."""
    source = Source.read(target)
    return source if source and source.matches(handler) and source.is_complete_in(target) else None


def download(handler: HandlerSection, target: Path, hub: Hub, *, force: bool = False) -> Source:
    """Bring the model that a YAML names to a folder; until it is complete the old one stays there.

    The head, the labels and the tokenizer are checked before any weights are fetched.

    Raises:
        WrongConfig: when the YAML names no model.
        WrongCheckpoint: when the model does not fit the YAML, or the folder is not this command's.
        HubError: when the hub or the model is out of reach.
    """
    model = _model_name(handler)
    if target.exists() and Source.read(target) is None and not force:
        raise WrongCheckpoint(
            str(target), "was not made by a script of this kit", "move it away or add --force"
        )
    snapshot = hub.snapshot(model, handler.revision)
    try:
        with Staging.open(target) as staging:
            source = _complete(handler, snapshot, hub, staging)
            source.write(staging.folder)
            staging.install()
    except OSError as error:
        raise CannotWrite(target, error) from None
    return source


def check_folder(handler: HandlerSection, folder: Path) -> tuple[int, int]:
    """Check a checkpoint that is a local folder already; returns (bytes, number) of its files.

    Raises:
        WrongCheckpoint: when it does not fit the YAML.
    """
    names = {path.name for path in folder.iterdir()}
    needed = config_files(names, str(folder))
    _check(handler, folder)
    weights = weights_file(names, str(folder), allow_pickle=handler.allow_pickle)
    needed += [weights, *shard_files(folder / weights, names, str(folder))]
    return sum((folder / name).stat().st_size for name in needed), len(needed)


def _complete(handler: HandlerSection, snapshot: Snapshot, hub: Hub, staging: Staging) -> Source:
    names, model = snapshot.files.keys(), snapshot.model
    weights = weights_file(names, model, allow_pickle=handler.allow_pickle)
    needed = config_files(names, model)
    _fetch(needed, snapshot, hub, staging)
    _check(handler, staging.folder)
    _fetch([weights], snapshot, hub, staging)
    shards = shard_files(staging.folder / weights, names, model)
    _fetch(shards, snapshot, hub, staging)
    needed += [weights, *shards]
    staging.keep_only(needed)
    sizes = {name: snapshot.files[name].size for name in sorted(needed)}
    return Source(model_name=model, revision=handler.revision, commit=snapshot.commit, files=sizes)


def _fetch(names: list[str], snapshot: Snapshot, hub: Hub, staging: Staging) -> None:
    files = [snapshot.files[name] for name in names]
    staging.check_free_space(sum(file.bytes_to_come(staging.folder) for file in files))
    for file in files:
        hub.fetch(snapshot, file, staging.folder)


def _check(handler: HandlerSection, folder: Path) -> None:
    # Torch takes seconds to import, and a second run that finds everything does without.
    from scripts.kit.compatibility import check_compatible  # noqa: PLC0415

    check_compatible(handler, folder)


def _model_name(handler: HandlerSection) -> str:
    name = handler.model_name
    if not name:
        raise WrongConfig("handler.model_name", "is missing", "name a model of the hub or a folder")
    if name.startswith(("/", "./", "../", "~")):
        raise WrongConfig("handler.model_name", f"there is no folder {name}", "mend the path")
    return name
