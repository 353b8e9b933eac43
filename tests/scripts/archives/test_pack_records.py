"""An archive that would not change is found without reading what it is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import sleep
from zipfile import ZipFile

import pytest

from hf_serve.scripts.archives.pack_records import SETTLED_NS
from hf_serve.scripts.archives.packing import Archive, pack
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.paths import BUILD, MODEL_STORE, build_of

Pack = Callable[..., Archive]


@pytest.fixture
def again(
    tmp_path: Path, config_path: Path, handlers: Path, monkeypatch: pytest.MonkeyPatch
) -> Pack:
    """Pack a model as it was packed before, and fail if a file of it is read."""
    pack_it: Pack = partial(
        pack,
        config_path,
        export_path=tmp_path / "store",
        handlers=handlers,
        build=tmp_path / "build",
        checked=False,
    )
    sleep(SETTLED_NS / 1e9)  # Files that were just written could change again unnoticed.
    assert pack_it().made

    def unexpected(*_: object) -> None:
        raise AssertionError("the files were read")

    monkeypatch.setattr("hf_serve.scripts.archives.packing.contents", unexpected)
    return pack_it


def test_an_archive_that_would_not_change_is_not_read(again: Pack, tmp_path: Path) -> None:
    archive = again()
    assert not archive.made
    assert archive.size == sum(
        path.stat().st_size for path in (tmp_path / "store").iterdir()
    ) - overhead(archive.path)


def overhead(path: Path) -> int:
    """Return the bytes of headers and directory of a .mar."""
    from hf_serve.hosts.mar_reader import Mar  # noqa: PLC0415

    with Mar(path) as mar:
        return path.stat().st_size - sum(entry.size for entry in mar.entries)


def change_content(path: Path) -> None:
    """Change a file, and let it have its size and its time again."""
    found, content = path.stat(), path.read_bytes()
    path.write_bytes(bytes(each ^ 1 for each in content) or b"x")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "YAML": lambda folder: (folder / "qa.yaml").open("a").write("\n"),
    "weights": lambda folder: change_content(folder / "weightless" / "model.safetensors"),
    "new file of the checkpoint": lambda folder: (folder / "weightless" / "vocab.txt").touch(),
    "file of the checkpoint that is gone": lambda folder: (
        folder / "weightless" / "index_to_name.json"
    ).unlink(),
    "code": lambda folder: change_content(folder / "package" / "handlers" / "__init__.py"),
    "new code": lambda folder: (folder / "package" / "handlers" / "new.py").touch(),
    "archive": lambda folder: change_content(folder / "store" / "qa.mar"),
    "archive that is gone": lambda folder: (folder / "store" / "qa.mar").unlink(),
    "record": lambda folder: next((folder / "build" / "packed").iterdir()).unlink(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_archive_is_compared_where_something_changed(
    name: str, again: Pack, tmp_path: Path
) -> None:
    CHANGES[name](tmp_path)
    with pytest.raises(AssertionError, match="the files were read"):
        again()


def test_another_way_to_pack_is_another_archive(again: Pack, tmp_path: Path, keys: Path) -> None:
    for options in (
        {"version": "2.0"},
        {"signing_key": keys / "own.pem"},
        {"extra_files": [tmp_path / "qa.yaml"]},
        {"archive_format": "tgz"},
        {"force": True},
    ):
        with pytest.raises(AssertionError, match="the files were read"):
            again(**options)


def test_the_environment_that_an_archive_depends_on_is_compared(
    again: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    with pytest.raises(AssertionError, match="the files were read"):
        again()


def test_an_unchanged_archive_is_found_without_torch_and_numpy(
    again: Pack, tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    store, build = tmp_path / "store", tmp_path / "build"
    packs = (
        "import sys; from pathlib import Path; from hf_serve.scripts.archives import packing; "
        "packing.contents = None; "
        f"print(packing.pack(Path({str(config_path)!r}), export_path=Path({str(store)!r}), "
        f"handlers=Path({str(handlers)!r}), build=Path({str(build)!r})).made, "
        "{'torch', 'transformers', 'numpy'} & {*sys.modules})"
    )
    process = subprocess.run([sys.executable, "-c", packs], capture_output=True, text=True)
    assert (process.stdout, process.stderr) == ("False set()\n", "")


def test_builds_are_kept_where_archives_are_put(tmp_path: Path) -> None:
    assert build_of(MODEL_STORE) == build_of(ROOT / "scripts" / ".." / "model_store") == BUILD
    assert build_of(tmp_path / "store").is_relative_to(tmp_path)


def test_a_file_behind_a_link_to_a_folder_is_one_of_those_that_are_packed(
    tmp_path: Path, config_path: Path, handlers: Path
) -> None:
    notes, extra = tmp_path / "elsewhere" / "notes.txt", tmp_path / "extra"
    notes.parent.mkdir()
    notes.write_text("first")
    extra.mkdir()
    (extra / "linked").symlink_to(notes.parent)
    (notes.parent / "up").symlink_to(extra)
    pack_it = partial(
        pack,
        config_path,
        export_path=tmp_path / "store",
        extra_files=[extra],
        handlers=handlers,
        build=tmp_path / "build",
        checked=False,
    )
    sleep(SETTLED_NS / 1e9)
    pack_it()
    notes.write_text("second")
    with ZipFile(pack_it().path) as archive:
        assert archive.read("linked/notes.txt") == b"second"
