from __future__ import annotations

from pathlib import Path

import pytest

from handlers.errors import WrongCheckpoint
from scripts.kit.staging import AlreadyRunning, InsufficientDiskSpace, Staging


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A checkpoint that is in its place."""
    folder = tmp_path / "models" / "name"
    folder.mkdir(parents=True)
    (folder / "old").touch()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_old_checkpoint_stays_until_the_new_one_takes_its_place(target: Path) -> None:
    with Staging.open(target) as staging:
        (staging.folder / "new").touch()
        assert names(target) == ["old"]
        staging.install()
    assert names(target) == ["new"]
    assert not staging.folder.exists()


def test_what_an_interrupted_download_left_is_there_again(target: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Staging.open(target) as staging:
        (staging.folder / "part").write_text("half")
        (staging.folder / "empty").touch()
        raise KeyboardInterrupt
    with Staging.open(target) as staging:
        assert names(staging.folder) == ["part"]
        staging.keep_only([])
        assert names(staging.folder) == []


def test_a_refused_model_leaves_nothing(target: Path) -> None:
    with pytest.raises(WrongCheckpoint), Staging.open(target) as staging:
        (staging.folder / "config.json").touch()
        raise WrongCheckpoint("org/name", "has no head", "name another")
    assert not staging.folder.exists()
    assert names(target) == ["old"]


def test_a_replacement_that_was_killed_half_way_is_undone(target: Path) -> None:
    aside = target.parent / ".incomplete" / "name.replaced"
    aside.parent.mkdir()
    target.rename(aside)
    with Staging.open(target):
        assert names(target) == ["old"]
    assert not aside.exists()


def test_two_downloads_to_one_place_do_not_mix(target: Path) -> None:
    with (
        Staging.open(target),
        pytest.raises(AlreadyRunning, match=str(target)),
        Staging.open(target),
    ):
        pytest.fail("both are at work")


def test_files_that_do_not_fit_are_refused_before_they_come(target: Path) -> None:
    with Staging.open(target) as staging:
        staging.check_free_space(1)
        with pytest.raises(InsufficientDiskSpace, match="free disk space"):
            staging.check_free_space(1 << 60)
