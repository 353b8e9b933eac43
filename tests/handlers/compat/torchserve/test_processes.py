from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from handlers.compat.torchserve import processes as workers
from tests.standins.workers import running_launcher, running_workers


def test_workers_of_other_models_and_launchers_are_not_counted(
    model_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with (
        running_workers(model_folder, 2),
        running_workers(other, 1),
        running_launcher(model_folder),
    ):
        assert workers.count_workers() == 2


def test_of_several_workers_the_first_one_has_no_older_one(model_folder: Path) -> None:
    with running_workers(model_folder, 3) as started:
        processes = [psutil.Process(each.pid) for each in started]
        found = [workers.has_older_worker(process) for process in processes]
    assert found == [False, True, True]


def test_workers_of_another_server_are_not_older_ones(model_folder: Path) -> None:
    """A shell stands in for the other server; its worker starts last."""
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with (
        running_workers(model_folder, 1),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell,
    ):
        assert shell.stdout is not None
        other = psutil.Process(int(shell.stdout.readline()))
        try:
            assert workers.has_older_worker(psutil.Process(shell.pid))
            assert not workers.has_older_worker(other)
        finally:
            other.kill()
