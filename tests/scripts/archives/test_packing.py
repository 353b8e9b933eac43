from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hf_serve.handlers.errors import WrongConfig
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS, FormatName
from hf_serve.scripts.archives.load_check import ArchiveLoadError
from hf_serve.scripts.archives.pack_records import FilesChanged
from hf_serve.scripts.archives.packing import LOCK, pack
from hf_serve.scripts.hub.staging import InsufficientDiskSpace
from hf_serve.scripts.installation import ROOT
from tests import tiny
from tests.sentences import refused
from tests.standins.archives import write_handlers, write_yaml
from tests.standins.checkpoints import write_checkpoint, write_config
from tests.tiny_tokenizers import write_llama


def test_pack_writes_only_the_archive_to_the_store(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    archive = pack(config_path, export_path=tmp_path / "store", handlers=handlers)

    assert archive.made
    assert list((tmp_path / "store").iterdir()) == [archive.path] == [tmp_path / "store" / "qa.mar"]


# Exports of the second mode have several workers.
@pytest.mark.parametrize("mode", ["question_answering", "sentence_embedding"])
def test_packing_a_checkpoint_does_not_import_torch(
    tmp_path: Path, config_path: Path, handlers: Path, mode: str
) -> None:
    config_path.write_text(config_path.read_text("utf-8").replace("question_answering", mode))
    packs = (
        "import sys; from pathlib import Path; from hf_serve.scripts.archives.packing import pack; "
        f"pack(Path({str(config_path)!r}), export_path=Path({str(tmp_path / 'store')!r}), "
        f"handlers=Path({str(handlers)!r})); print({{'torch', 'transformers'}} & {{*sys.modules}})"
    )
    process = subprocess.run(
        [sys.executable, "-c", packs], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout == "set()\n"


def test_the_export_path_may_be_relative(
    tmp_path: Path, config_path: Path, handlers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert pack(config_path, export_path=Path("store"), handlers=handlers).path.exists()


def test_an_archive_that_does_not_load_does_not_replace_the_previous_one(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    old = pack(config_path, export_path=tmp_path / "store", handlers=handlers).path.read_bytes()
    broken = write_handlers(tmp_path / "broken", "raise ValueError('wrong labels')")

    with refused(ArchiveLoadError, "ValueError", "wrong labels"):
        pack(config_path, export_path=tmp_path / "store", handlers=broken)

    (left,) = (tmp_path / "store").iterdir()
    assert left.read_bytes() == old


def test_an_unchecked_archive_is_installed_even_if_it_does_not_load(
    tmp_path: Path, config_path: Path
) -> None:
    broken = write_handlers(tmp_path / "broken", "raise ValueError")

    assert pack(config_path, export_path=tmp_path, handlers=broken, checked=False).path.exists()


def test_an_unchanged_mar_is_kept_unless_forced(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    made = [
        pack(config_path, export_path=tmp_path, handlers=handlers, force=force).made
        for force in (False, False, True)
    ]

    assert made == [True, False, True]


def test_a_changed_checkpoint_replaces_the_archive(
    tmp_path: Path, config_path: Path, weightless: Path, handlers: Path
) -> None:
    pack(config_path, export_path=tmp_path, handlers=handlers)
    (weightless / "tokenizer.json").write_text("[]")

    archive = pack(config_path, export_path=tmp_path, handlers=handlers)

    assert zipfile.ZipFile(archive.path).read("tokenizer.json") == b"[]"


def test_a_folder_replaces_the_previous_folder(
    tmp_path: Path, config_path: Path, weightless: Path, handlers: Path
) -> None:
    store = tmp_path / "store"
    pack(config_path, archive_format="no-archive", export_path=store, handlers=handlers)
    (weightless / "index_to_name.json").unlink()

    folder = pack(
        config_path, archive_format="no-archive", export_path=store, handlers=handlers
    ).path

    assert list(store.iterdir()) == [folder]
    assert not (folder / "index_to_name.json").exists()
    assert (folder / "MAR-INF" / "MANIFEST.json").exists()


def test_a_tgz_archive_loads(tmp_path: Path, config_path: Path, handlers: Path) -> None:
    archive = pack(config_path, archive_format="tgz", export_path=tmp_path, handlers=handlers)

    assert archive.path.name == "qa.tar.gz"


def test_progress_ends_at_the_archive_size(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    steps: list[tuple[int, int]] = []

    archive = pack(
        config_path,
        export_path=tmp_path,
        handlers=handlers,
        on_progress=lambda done, total: steps.append((done, total)),
    )

    assert steps[-1] == (archive.size, archive.size)


@pytest.mark.nightly
def test_the_real_handler_loads_from_its_archive(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    config_path = write_config(tmp_path / "reviews.yaml", model_name=str(folder))

    assert pack(config_path, export_path=tmp_path / "store").path.exists()


def test_torch_model_archiver_packs_the_same_handler(tmp_path: Path, weightless: Path) -> None:
    arguments = {
        "--model-name": "question_answering",
        "--version": "1.0",
        "--handler": "handlers/transformers_handler.py",
        "--config-file": "model_configs/question_answering.yaml",
        "--extra-files": f"{weightless},artifacts/package",
        "--export-path": str(tmp_path),
        "--archive-format": "zip-store",
    }
    archiver = Path(sys.executable).with_name("torch-model-archiver")
    flat = [word for pair in arguments.items() for word in pair]
    # It puts files together in the system's temporary folder, under the model's name.
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([archiver, *flat, "--force"], cwd=ROOT, env=environment, check=True, timeout=240)

    with zipfile.ZipFile(tmp_path / "question_answering.mar") as archive:
        there, manifest = archive.namelist(), archive.read("MAR-INF/MANIFEST.json")

    source = {path.relative_to(ROOT).as_posix() for path in (ROOT / "handlers").rglob("*.py")}
    assert source <= set(there)
    assert {"transformers_handler.py", "model.safetensors"} < set(there)
    assert not any("__pycache__" in name for name in there)
    assert json.loads(manifest)["model"]["handler"] == "transformers_handler.py"


@pytest.mark.nightly
def test_a_model_is_packed_with_a_draft_model_of_the_same_tokens(tmp_path: Path) -> None:
    main = tiny.write(tmp_path / "main", "text_generation")
    draft = tiny.write(tmp_path / "draft", "text_generation", seed=1, n_layer=1)
    keys = {"mode": "text_generation", "assistant_model": str(draft)}
    config_path = write_yaml(tmp_path / "assisted.yaml", main, **keys)

    archive = pack(config_path, export_path=tmp_path / "store")

    assert "assistant_model/model.safetensors" in zipfile.ZipFile(archive.path).namelist()
    write_llama(draft)
    with refused(ArchiveLoadError):
        pack(config_path, export_path=tmp_path / "store")


def test_a_full_disk_is_said_and_leaves_nothing(
    tmp_path: Path, config_path: Path, handlers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = tmp_path / "store"
    container = dataclasses.replace(ARCHIVE_FORMATS["mar"], write=write)
    monkeypatch.setitem(ARCHIVE_FORMATS, "mar", container)
    with refused(InsufficientDiskSpace, 0):
        pack(config_path, export_path=store, handlers=handlers, checked=False)
    assert not list(store.iterdir())


@pytest.mark.parametrize("archive_format", ["mar", "tgz", "no-archive"])
@pytest.mark.parametrize("change", ["same size", "shorter", "removed"])
def test_a_file_that_changes_while_it_is_packed_is_no_part_of_an_archive(
    tmp_path: Path,
    config_path: Path,
    weightless: Path,
    handlers: Path,
    monkeypatch: pytest.MonkeyPatch,
    archive_format: FormatName,
    change: str,
) -> None:
    """Its sum is computed before it is written, so that the archive would not be what it says."""
    file = weightless / "tokenizer.json"

    def write(*arguments: Any) -> None:
        if change == "removed":
            file.unlink()
        else:
            file.write_text("[]" if change == "same size" else "0")
        known.write(*arguments)

    known = ARCHIVE_FORMATS[archive_format]
    monkeypatch.setitem(ARCHIVE_FORMATS, archive_format, dataclasses.replace(known, write=write))
    with refused(FilesChanged, "tokenizer.json"):
        pack(
            config_path,
            archive_format=archive_format,
            export_path=tmp_path / "store",
            handlers=handlers,
            checked=False,
        )
    assert not list((tmp_path / "store").iterdir())


def test_drafts_of_a_command_that_was_killed_are_removed_and_those_of_others_stay(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    names = ".qa.mar-killed00", ".qa.mar-running0", ".qa.mar-large.mar-killed00", ".qa.mar-other000"
    drafts = [tmp_path / name for name in names]
    for draft in drafts:
        draft.mkdir()
        (draft / LOCK).touch()
    (drafts[-1] / LOCK).unlink()
    with FileLock(drafts[1] / LOCK):
        pack(config_path, export_path=tmp_path, handlers=handlers, checked=False)
    assert [draft.exists() for draft in drafts] == [False, True, True, True]


def test_a_folder_takes_the_place_of_one_that_another_command_has_just_packed(
    tmp_path: Path, config_path: Path, handlers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def replace_late(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        (target / "handlers").mkdir(parents=True)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace_late)
    folder = pack(
        config_path,
        archive_format="no-archive",
        export_path=tmp_path,
        handlers=handlers,
        checked=False,
    ).path
    assert (folder / "MAR-INF" / "MANIFEST.json").is_file()


@pytest.mark.parametrize("seconds", ["x", "1e9", "4354819200", "9" * 30])
def test_a_time_that_no_archive_can_have_is_named(
    tmp_path: Path,
    config_path: Path,
    handlers: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: str,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    with refused(WrongConfig, "SOURCE_DATE_EPOCH", seconds):
        pack(config_path, export_path=tmp_path, handlers=handlers, checked=False)


@pytest.mark.parametrize("seconds", ["-1", "0", "4354819199"])
def test_the_time_of_an_archive_is_one_of_the_zip_format(
    tmp_path: Path,
    config_path: Path,
    handlers: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: str,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", seconds)
    archive = pack(config_path, export_path=tmp_path, handlers=handlers, checked=False).path
    years = {entry.date_time[0] for entry in zipfile.ZipFile(archive).infolist()}
    assert years <= {1980, 2107}
