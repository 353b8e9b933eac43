"""What a checkpoint is served as, from its small files, before its weights are downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError, safe_open

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.checkpoint_files import INDEX, files_in
from hf_serve.handlers.checkpoints.dtypes import why_not_installed
from hf_serve.handlers.checkpoints.unread_files import describe_unread, unread_files
from hf_serve.handlers.config.handler_section import AUTO, HandlerSection, save_modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import ConfigError, WrongCheckpoint, summarize
from hf_serve.handlers.explainers import targets
from hf_serve.scripts.hub.checkpoint_files import checkpoint_files
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.mode_detection import DetectedMode, detect_mode

SAFETENSORS = ".safetensors"
# Bytes of a number in a checkpoint, and in what is served of it.
BYTES_OF_DTYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
# Tokens of a graph of a fixed shape.
WIDTH = 128
SERVED = ("float32", "bfloat16", "int8")
PIPELINE = "a pipeline of diffusers"
# The mode whose labels exclude each other, or not.
LABELLED = "sequence_classification"
# Keys of a YAML that name other files, which are not read.
OF_OTHERS: dict[str, object] = {"custom": None, "adapters": {}, "assistant_model": None}


@dataclass(frozen=True)
class ModelCheck:
    """What a checkpoint is served as.

    Attributes:
        model: its id on the hub, or its folder.
        commit: the commit of the hub; None for a folder.
        mode: its mode, and what it follows from.
        architecture: its model class; empty for a model that cannot be read.
        dtype: the data type of its weights.
        max_positions: the most tokens of a row; None if it has no limit or no tokens.
        files: the number of its files that are served.
        size: their bytes, which are downloaded.
        weights: the bytes of its weights.
        formats: a `save_mode` for each format, with the reason why it is not possible; None for one
            that is possible.
        fastest: the fastest format for the mode on this machine.
        is_explained: whether the checkpoint explains results of an export.
        refusal: why it is not served; None if it is.
        left_out: the files of the model that are not served with it, as a sentence; None if there
            are none.
        not_installed: the formats that are not possible because their packages are not installed.
        labels: the labels of a classifier.
        independent_labels: whether each of them is scored by itself.
    """

    model: str
    commit: str | None
    mode: DetectedMode
    architecture: str
    dtype: str
    max_positions: int | None
    files: int
    size: int
    weights: int
    formats: Mapping[str, str | None]
    fastest: str
    is_explained: bool
    refusal: str | None
    left_out: str | None = None
    not_installed: Sequence[str] = ()
    labels: Sequence[str] = ()
    independent_labels: bool = False

    @property
    def parameters(self) -> int:
        """About the number of its parameters."""
        return self.weights // BYTES_OF_DTYPES.get(self.dtype, 4)

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes of its weights in memory, by data type."""
        return {dtype: self.parameters * BYTES_OF_DTYPES[dtype] for dtype in SERVED}


@dataclass(frozen=True)
class _Files:
    """The small files of a checkpoint, and the sizes of all."""

    folder: Path
    sizes: Mapping[str, int]
    commit: str | None = None
    hub_task: str | None = None
    fetch: Callable[[str], Path] | None = None

    @property
    def is_remote(self) -> bool:
        """Whether they are on the hub."""
        return self.fetch is not None

    def read(self, name: str) -> Path:
        return self.fetch(name) if self.fetch else self.folder / name


def check_model(
    model: str,
    revision: str | None,
    hub: Hub,
    mode: str | None = None,
    *,
    allow_pickle: bool = False,
    handler: HandlerSection | None = None,
) -> ModelCheck:
    """Read the small files of a checkpoint, and find out how it is served.

    Args:
        model: an id of the hub, or a folder.
        revision: the revision on the hub.
        hub: the hub.
        mode: the mode, if it is not to be detected.
        allow_pickle: whether pickles of weights may be served.
        handler: the section of a YAML, whose other keys say how the model is read.

    Raises:
        HubError: the hub or the model is not available.
        ModeNotCertain: its files fit several modes, or none.
        WrongCheckpoint: it is no checkpoint, or its weights are in no file that is served.
    """
    if Path(model).is_file():
        raise WrongCheckpoint(
            model, "is a file", "name the folder that it is in, a YAML file or a .mar"
        )
    allow_pickle = allow_pickle or bool(handler and handler.allow_pickle)
    with _small_files(model, revision, hub) as found:
        files = checkpoint_files(found.sizes, model, found.read)
        names = files.configs()
        weights = files.weights(
            allow_pickle=allow_pickle or (files.converts_pickles and found.is_remote)
        )
        for name in [*names, *(each for each in weights if each.endswith(INDEX))]:
            found.read(name)
        weights += files.shards(found.folder, weights)
        if found.is_remote:
            files.add_missing(found.folder, hub)
        detected = (
            DetectedMode(mode, "it was named")
            if mode
            else detect_mode(found.folder, found.hub_task, model, found.sizes)
        )
        section = HandlerSection(mode=detected.mode, model_name=model, allow_pickle=allow_pickle)
        if handler:
            section = handler.model_copy(update=section.model_dump(exclude_unset=True) | OF_OTHERS)
        is_read_by_code = bool(handler and handler.custom)
        left_out = None if is_read_by_code else describe_unread(unread_files(found.sizes))
        checked = _checked(model, found, section, detected, {*names, *weights}, weights)
        return replace(checked, left_out=left_out)


def _checked(
    model: str,
    found: _Files,
    handler: HandlerSection,
    detected: DetectedMode,
    names: set[str],
    weights: list[str],
) -> ModelCheck:
    checkpoint: Checkpoint | None = None
    refusal: str | None = None
    try:
        checkpoint = tasks.load(found.folder, handler).checkpoint
    except ConfigError as error:
        refusal = str(error)
    except Exception as error:  # noqa: BLE001 - files of strangers have any values
        refusal = str(
            WrongCheckpoint(
                model,
                "has a file with a value that cannot be used"
                f" ({type(error).__name__}: {summarize(error, 150)})",
                "correct its JSON files",
            )
        )
    if not refusal and not found.is_remote:
        refusal = _why_unreadable(found.folder, weights)
    # vLLM has its own kernels of quantized weights.
    if not refusal and checkpoint and handler.engine is None:
        missing = why_not_installed(checkpoint.config)
        refusal = str(missing) if missing else None
    is_pipeline = detected.mode == "text_to_image"
    checkpoint = None if is_pipeline else checkpoint or _checkpoint(found.folder, handler)
    config = checkpoint.config if checkpoint else None
    found_formats = dict(_formats(handler))
    labels = checkpoint.labels if checkpoint and not refusal and detected.mode == LABELLED else ()
    return ModelCheck(
        model=model,
        commit=found.commit,
        mode=detected,
        architecture=checkpoint.architecture if checkpoint else (PIPELINE if is_pipeline else ""),
        dtype=str(getattr(config, "dtype", None) or "float32").removeprefix("torch."),
        max_positions=_limit(checkpoint) if checkpoint else None,
        files=len(names),
        size=sum(found.sizes[name] for name in names),
        weights=sum(found.sizes[name] for name in weights if not name.endswith(INDEX)),
        formats=found_formats,
        fastest=_fastest(detected.mode),
        is_explained=_is_explained(detected.mode),
        refusal=refusal,
        not_installed=_not_installed(handler.mode, found_formats),
        labels=labels,
        independent_labels=bool(labels and checkpoint and checkpoint.independent_labels),
    )


def _why_unreadable(folder: Path, weights: Iterable[str]) -> str | None:
    """Return which safetensors is no whole file, as after a copy that ended early."""
    for name in weights:
        if name.endswith(SAFETENSORS):
            try:
                with safe_open(folder / name, "pt"):
                    pass
            except (SafetensorError, OSError) as error:
                wrong = f"cannot be read ({summarize(error, 150)})"
                return str(WrongCheckpoint(name, wrong, "copy or download the file again"))
    return None


def _checkpoint(folder: Path, handler: HandlerSection) -> Checkpoint | None:
    """Return a checkpoint; None for one that cannot be read, which is refused."""
    try:
        return tasks.get(handler.mode).read_checkpoint(folder, handler)
    except Exception:  # noqa: BLE001 - the refusal says what is wrong
        return None


def _limit(checkpoint: Checkpoint) -> int | None:
    """Return the most tokens of a row; None without a limit, and where no tokenizer is read."""
    try:
        return checkpoint.limit
    except Exception:  # noqa: BLE001 - the model has no texts, or the refusal says what is wrong
        return None


def _fastest(mode: str) -> str:
    return formats.choose(ModelConfig.parse({"handler": {"mode": mode}})).save_mode


def _is_explained(mode: str) -> bool:
    return targets.get(mode) is not None and not tasks.get(mode).description.generation.texts


def _formats(handler: HandlerSection) -> Iterator[tuple[str, str | None]]:
    """Yield each format with the reason why a mode does not have it here."""
    for save_mode in save_modes():
        if save_mode == AUTO:
            continue
        keys: dict[str, object] = {"mode": handler.mode, "save_mode": save_mode}
        if formats.get(save_mode).capabilities.has_fixed_shape:
            keys["max_length"] = WIDTH
        config = ModelConfig.parse({"handler": keys})
        yield save_mode, formats.find_problem(config, save_mode)


def _not_installed(mode: str, found: Mapping[str, str | None]) -> list[str]:
    return [
        name
        for name, problem in found.items()
        if problem and problem == formats.describe_missing(mode, name)
    ]


@contextmanager
def _small_files(model: str, revision: str | None, hub: Hub) -> Iterator[_Files]:
    """Yield the files of a folder, or of a repository, which are downloaded when read."""
    folder = Path(model)
    if folder.is_dir():
        yield _Files(folder, {name: (folder / name).stat().st_size for name in files_in(folder)})
        return
    snapshot = hub.snapshot(model, revision)
    with TemporaryDirectory(prefix="check-") as made:

        def fetch(name: str) -> Path:
            return hub.fetch(snapshot, snapshot.files[name], Path(made))

        sizes = {name: file.size for name, file in snapshot.files.items()}
        yield _Files(Path(made), sizes, snapshot.commit, snapshot.hub_task, fetch)
