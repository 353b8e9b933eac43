from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.staging import AlreadyRunning, InsufficientDiskSpace, Staging
from tests.sentences import refused


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An installed checkpoint."""
    folder = tmp_path / "models" / "name"
    folder.mkdir(parents=True)
    (folder / "old").touch()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_previous_checkpoint_is_kept_until_the_new_one_is_installed(target: Path) -> None:
    with Staging.open(target) as staging:
        (staging.folder / "new").touch()
        assert names(target) == ["old"]
        staging.install()
    assert names(target) == ["new"]
    assert not staging.folder.exists()


def test_the_files_of_an_interrupted_download_are_kept(target: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Staging.open(target) as staging:
        (staging.folder / "part").write_text("half")
        (staging.folder / "empty").touch()
        raise KeyboardInterrupt
    with Staging.open(target) as staging:
        assert names(staging.folder) == ["part"]
        staging.keep_only([])
        assert names(staging.folder) == []


def test_symlinks_are_not_followed_out_of_the_folder(target: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("kept")
    with Staging.open(target) as staging:
        (staging.folder / "half").write_text("half")
    (staging.folder / "link").symlink_to(outside / "mine")
    (staging.folder / "dangling").symlink_to(outside / "gone")
    (staging.folder / "folder").symlink_to(outside)
    (staging.folder / "sub").mkdir()
    with Staging.open(target):
        assert names(staging.folder) == ["half"]
    assert names(outside) == ["mine"]


def test_a_staging_folder_that_is_a_symlink_is_replaced(target: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (target.parent / ".incomplete").mkdir()
    (target.parent / ".incomplete" / "name").symlink_to(outside)
    with Staging.open(target) as staging:
        (staging.folder / "new").write_text("new")
        staging.install()
    assert (names(target), names(outside)) == (["new"], [])


def test_a_target_that_is_a_symlink_is_replaced_and_what_it_names_is_kept(
    target: Path, tmp_path: Path
) -> None:
    elsewhere = target.rename(tmp_path / "elsewhere")
    target.symlink_to(elsewhere)
    for content in ("first", "second"):
        with Staging.open(target) as staging:
            (staging.folder / content).write_text(content)
            staging.install()
        assert names(target) == [content]
    assert names(elsewhere) == ["old"]


def test_the_files_of_a_rejected_model_are_removed(target: Path) -> None:
    with pytest.raises(WrongCheckpoint), Staging.open(target) as staging:
        (staging.folder / "config.json").touch()
        raise WrongCheckpoint("org/name", "has no head", "name another")
    assert not staging.folder.exists()
    assert names(target) == ["old"]


def test_an_interrupted_installation_is_reverted(target: Path) -> None:
    aside = target.parent / ".incomplete" / "name.replaced"
    aside.parent.mkdir()
    target.rename(aside)
    with Staging.open(target):
        assert names(target) == ["old"]
    assert not aside.exists()


def test_concurrent_downloads_to_one_target_are_rejected(target: Path) -> None:
    with (
        Staging.open(target),
        refused(AlreadyRunning, target),
        Staging.open(target),
    ):
        pytest.fail("both hold the lock")


def test_insufficient_disk_space_is_an_error(target: Path) -> None:
    with Staging.open(target) as staging:
        staging.check_free_space(1)
        with refused(InsufficientDiskSpace):
            staging.check_free_space(1 << 60)
