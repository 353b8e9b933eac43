"""Export or measure models once per YAML file and checkpoint, and keep what was made."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from filelock import FileLock

from hf_serve.handlers import formats
from hf_serve.handlers.checkpoints.dtypes import cpu_has_bfloat16
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.protocols.base import is_chat
from hf_serve.handlers.types.decisions import LabelledQuestion
from hf_serve.handlers.types.request import Sample
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import ARTIFACTS, BUILD, build_key, calibration_file

HANDLERS = ROOT / "handlers"
FINGERPRINT = ".fingerprint"
# What an export runs of `handlers`; the other packages serve what was exported.
EXPORTING = (
    "batching",
    "checkpoints",
    "compat",
    "config",
    "errors.py",
    "export",
    "formats",
    "generation",
    "media",
    "model.py",
    "process",
    "registry.py",
    "tasks",
    "types",
)
# Keys that TorchServe, or the worker of an exported model, reads and an export does not.
OF_SERVING = {
    "minWorkers",
    "maxWorkers",
    "maxBatchDelay",
    "responseTimeout",
    "startupTimeout",
    "deviceIds",
    "maxRetryTimeoutInSec",
    "clientTimeoutInMills",
    "jobQueueSize",
    "useJobTicket",
    "useVenv",
}
OF_WORKERS = {"predict_timeout", "explain_timeout", "max_waiting", "profile"}


def exported(
    config_path: Path, config: ModelConfig, checkpoint: Path, build: Path = BUILD
) -> dict[str, Path]:
    """Return the files of an exported model by name, exporting it again if anything changed.

    A lossy export includes `quality.json`, the comparison with the checkpoint in float32. A
    checkpoint that is not exported has that file alone. With `save_mode: auto` there is a file with
    the format that was chosen, and with `labelled` one with the calibration. They are kept below
    `build`, apart for each YAML file.

    Raises:
        ConfigError: the model cannot be exported.
    """
    requests = samples(config_path, config)
    labelled = _labelled_questions(config_path, config)
    folder = build / "exports" / build_key(config_path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Another command that packs the same YAML waits, and finds what this one has exported.
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        digest = fingerprint(config, checkpoint, [*requests, *labelled])
        if not _is_current(folder, digest):
            draft = folder.with_name(f".{folder.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            formats.export(checkpoint, config, draft, requests)
            if config.handler.labelled is not None:
                formats.calibrate(checkpoint, config, draft, labelled)
            (draft / FINGERPRINT).write_text(digest, encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path for path in files if not path.name.startswith(".")
    }


def _labelled_questions(config_path: Path, config: ModelConfig) -> list[LabelledQuestion]:
    if config.handler.labelled is None:
        return []
    # Questions of a file are read as in a request, by modules that load torch.
    from hf_serve.scripts.archives.labelled import labelled_questions  # noqa: PLC0415

    return labelled_questions(config_path, config)


def _is_current(folder: Path, digest: str) -> bool:
    path = folder / FINGERPRINT
    return path.is_file() and path.read_text(encoding="utf-8") == digest


def _versions(config: ModelConfig) -> list[str]:
    """Return the versions of torch, transformers and the packages required by a format."""
    handler = config.handler
    # The checkpoint itself needs no other package, and the import of its format loads torch.
    others = formats.get(handler.save_mode).packages if handler.is_exported else ()
    names = {name.partition(".")[0] for name in ("torch", "transformers", *others)}
    found = {owner for name in names for owner in _distributions().get(name, ())}
    return sorted(f"{name} {version(name)}" for name in found)


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the installed distributions of each package; all of them are read."""
    return packages_distributions()


def _code() -> str:
    """Return a digest of the code that an export runs."""
    digest = hashlib.sha256()
    for name in EXPORTING:
        place = HANDLERS / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"{path.relative_to(HANDLERS)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def fingerprint(config: ModelConfig, checkpoint: Path, requests: Sequence[Any]) -> str:
    """Return a digest of everything an export depends on.

    This is the config without the keys of serving alone, the format of `save_mode: auto` on this
    machine, the samples, the code that an export runs, with that of `handler.custom`, package
    versions, whether `dtype: auto` is bfloat16 here, and the names, sizes and modification times of
    the checkpoint files.
    """
    keys = config.model_dump_json(
        exclude={**dict.fromkeys(OF_SERVING, True), "handler": OF_WORKERS}
    )
    digest = hashlib.sha256(keys.encode())
    planned = formats.plan(config)
    chosen = (planned.handler.save_mode, planned.handler.engine)
    digest.update(repr((requests, chosen, _versions(planned))).encode())
    digest.update(f"{config.handler.dtype == 'auto' and cpu_has_bfloat16()} {_code()}".encode())
    if config.handler.custom and Path(config.handler.custom).is_file():
        digest.update(Path(config.handler.custom).read_bytes())
    # Also those in folders, such as the layers of a sentence transformer.
    for path in sorted(each for each in checkpoint.rglob("*") if each.is_file()):
        stat, name = path.stat(), path.relative_to(checkpoint)
        digest.update(os.fsencode(f"{name} {stat.st_size} {stat.st_mtime_ns}"))
    return digest.hexdigest()


def samples(config_path: Path, config: ModelConfig, artifacts: Path = ARTIFACTS) -> list[Sample]:
    """Read the JSON lines of `handler.calibration`, or the file of the mode in `artifacts`.

    The path is relative to the YAML file. Each line is a request body; a list of inputs counts as
    one request per item. Blank lines are skipped. A checkpoint that is not exported needs none, so
    that the default file may be missing.

    Raises:
        WrongConfig: the file cannot be read as UTF-8, or a line is not a valid request.
    """
    path = calibration_file(config_path, config, artifacts)
    named = config.handler.calibration
    if not (path.exists() or named or formats.plan(config).handler.is_exported):
        return []
    # Not splitlines(), which also splits at other line separators inside a text.
    lines = enumerate(_text(path).split("\n"), 1)
    filled = ((f"{path}, line {number}", line) for number, line in lines if line.strip())
    return [sample for place, line in filled for sample in _samples(line, place)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WrongConfig(
            "handler.calibration", f"{path} cannot be read ({error.strerror})", "correct the path"
        ) from None
    except UnicodeDecodeError:
        raise WrongConfig(
            "handler.calibration", f"{path} is not UTF-8", "save it as UTF-8"
        ) from None


def _samples(line: str, place: str) -> list[Sample]:
    try:
        body = json.loads(line)
        inputs, parameters = body["inputs"], dict(body.get("parameters") or {})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongConfig(
            place, "is not a request", 'write {"inputs": ...} as one line of JSON'
        ) from None
    if inputs == []:
        raise WrongConfig(place, "has an empty list of inputs", "add one, or remove the line")
    if not isinstance(inputs, list) or is_chat(inputs):
        return [Sample(inputs, parameters, place=place)]
    return [
        Sample(item, parameters, is_batch_item=True, place=f"{place}, inputs[{number}]")
        for number, item in enumerate(inputs)
    ]
