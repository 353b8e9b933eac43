from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hf_serve.handlers.checkpoints.archive_signature import SUMS, sums_of
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS, FormatName
from hf_serve.scripts.archives.load_check import check_loads
from hf_serve.scripts.archives.packing import Archive, pack
from hf_serve.scripts.archives.verification import verify_archive
from tests import tiny
from tests.standins.archives import write_handlers, write_yaml

FILE = "trials.json"
# The record has the number of the load.
ENTRY = """
from pathlib import Path
from types import SimpleNamespace

class TransformersHandler:
    def initialize(self, context):
        loads = Path(LOADS)
        loads.write_text(str(int(loads.read_text()) + 1))
        record = loads.read_text() if FOUND is None else FOUND
        self.engine = SimpleNamespace(trial_record=SimpleNamespace(model_dump_json=lambda: record))
"""


class Packing:
    """Packs a model whose handler counts its loads, and has a record."""

    def __init__(self, folder: Path, config_path: Path) -> None:
        self.handlers = write_handlers(folder / "counting" / "handlers")
        self._loads = folder / "loads"
        self._loads.write_text("0")
        self.find("[1]")
        self.pack: Callable[..., Archive] = partial(
            pack,
            config_path,
            export_path=folder / "store",
            handlers=self.handlers,
            build=folder / "build",
        )

    def find(self, record: str | None) -> None:
        """Have loads find a record; None is for another one in each load."""
        head = f"LOADS, FOUND = {str(self._loads)!r}, {record!r}\n"
        (self.handlers / "transformers_handler.py").write_text(head + ENTRY)

    @property
    def loads(self) -> int:
        return int(self._loads.read_text())


@pytest.fixture
def packing(tmp_path: Path, config_path: Path) -> Packing:
    return Packing(tmp_path, config_path)


def content(archive: Archive, name: str = FILE) -> str | None:
    with zipfile.ZipFile(archive.path) as opened:
        return opened.read(name).decode() if name in opened.namelist() else None


def test_an_archive_has_what_the_trials_of_its_load_check_found(packing: Packing) -> None:
    archive = packing.pack()

    assert content(archive) == "[1]"
    assert packing.loads == 1


def test_the_record_has_a_sum_and_is_signed(packing: Packing, keys: Path) -> None:
    archive = packing.pack(signing_key=keys / "own.pem")

    assert f"  {FILE}\n" in (content(archive, SUMS) or "")
    verify_archive(archive.path, keys / "own.pub")


@pytest.mark.parametrize("archive_format", ["mar", "tgz", "no-archive"])
def test_every_format_has_the_record(
    packing: Packing, tmp_path: Path, archive_format: FormatName
) -> None:
    archive = packing.pack(archive_format=archive_format)

    folder = ARCHIVE_FORMATS[archive_format].unpack(archive.path, tmp_path / "unpacked")
    assert (folder / FILE).read_text() == "[1]"


def test_an_archive_with_a_record_is_kept(packing: Packing) -> None:
    packing.pack()

    assert not packing.pack().made
    assert not packing.pack(checked=False).made
    assert packing.loads == 1


def test_an_archive_that_was_not_loaded_has_no_record(packing: Packing) -> None:
    assert content(packing.pack(checked=False)) is None


def test_a_record_of_other_files_is_not_packed(packing: Packing) -> None:
    packing.pack()
    packing.find("[2]")

    assert content(packing.pack(checked=False)) is None
    assert content(packing.pack(force=True)) == "[2]"


def test_a_load_check_that_finds_something_else_replaces_the_record(packing: Packing) -> None:
    packing.find(None)
    assert content(packing.pack()) == "1"

    assert content(packing.pack(force=True)) == "2"
    assert content(packing.pack(checked=False, force=True)) == "2"


@pytest.mark.nightly
def test_a_load_in_the_environment_of_the_load_check_takes_the_record(
    tmp_path: Path,
) -> None:
    mode = "sequence_classification"
    folder = tiny.write(tmp_path / "checkpoint", mode)
    yaml = write_yaml(tmp_path / "tiny.yaml", folder, mode=mode, dtype="float32")
    archive = pack(yaml, export_path=tmp_path / "store", build=tmp_path / "build")
    folder = ARCHIVE_FORMATS["mar"].unpack(archive.path, tmp_path / "unpacked")
    record = json.loads((folder / FILE).read_text())
    assert record["results"]["packing"]
    # No trial finds this, so a load that does has taken it.
    record["results"] |= {"packing": None, "padded_limit": 3.0}
    (folder / FILE).write_text(json.dumps(record))
    sums = [line for line in (folder / SUMS).read_text().splitlines() if FILE not in line]
    new = sums_of({FILE: folder / FILE}).decode()
    (folder / SUMS).write_text("\n".join([*sums, new]))

    found = check_loads(folder, "tiny")

    assert found
    assert json.loads(found) == record
