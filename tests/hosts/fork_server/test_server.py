from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hf_serve.hosts.fork_server.launcher import GREETING_SECONDS
from hf_serve.hosts.fork_server.server import LOADING_SECONDS, has_turn, next_turn
from hf_serve.hosts.fork_server.start import ForkServer, is_on
from tests.hosts.fork_server.running import LOAD, MODULES, Running, running, write_loader
from tests.waiting import wait_for

pytestmark = pytest.mark.server

# What a worker sees of its start.
SEEN = """
import gc, json, os, sys
print(json.dumps({
    "argv": sys.argv[1:], "original": sys.orig_argv[1:], "folder": os.getcwd(),
    "path": sys.path, "environment": dict(os.environ), "main": __name__, "file": __file__,
    "kit": [name for name in sys.modules if name.startswith("scripts")],
    "gc": gc.isenabled(), "frozen": gc.get_freeze_count() > 0, "input": sys.stdin.read(),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
    "command": open("/proc/self/cmdline").read().split("\\0")[1:-1],
}))
print("written", file=sys.stderr)
"""
FORKED = "import gc; print(gc.get_freeze_count() > 0)"
READY = "print('up', flush=True); input()"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("worker"), FREE="same") as started:
        write_loader(started.folder)
        yield started


def started(server: Running, source: str = READY) -> subprocess.Popen[str]:
    worker = server.start(source)
    assert worker.stdout
    assert worker.stdout.readline() == "up\n"
    return worker


def child(server: Running) -> psutil.Process:
    (found,) = server.process().children()
    return found


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_worker_sees_what_it_was_started_with(server: Running) -> None:
    own = {"PYTHONPATH": f"{server.folder}:{server.folder / 'other'}", "TS_X": "1"}
    process = server.start(SEEN, "--port", "9 0", environment=own)
    output, errors = process.communicate("asked", timeout=60)
    seen = json.loads(output)

    script = str(server.folder / "model_service_worker.py")
    assert process.returncode == 0
    assert seen["frozen"]
    assert seen["argv"] == ["--port", "9 0"]
    assert seen["original"] == seen["command"] == [script, "--port", "9 0"]
    assert (seen["main"], seen["file"]) == ("__main__", script)
    assert seen["folder"] == str(server.folder)
    # The shell that starts the launcher adds some, such as PWD.
    assert seen["environment"].items() >= {**server.environment, **own}.items()
    assert seen["input"] == "asked"
    assert errors == "written\n"
    assert seen["kit"] == []
    assert seen["gc"]


def test_a_worker_has_the_path_and_the_files_of_an_ordinary_start(server: Running) -> None:
    source = SEEN + "sys.stdout.flush()"
    own = {"PYTHONPATH": f"{server.folder}:/nowhere:"}
    forked = json.loads(server.start(source, environment=own).communicate("")[0])
    other = json.loads(server.start(source, environment={**own, "OTHER": "1"}).communicate("")[0])

    assert (forked["frozen"], other["frozen"]) == (True, False)
    assert forked["path"] == other["path"]
    # Beside the standard streams, the one that is closed when the model is loaded.
    assert len(forked["descriptors"]) <= len(other["descriptors"]) + 1


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_that_of_the_worker(code: int, server: Running) -> None:
    assert server.run(f"import sys; sys.exit({code})")[0] == code


def test_an_error_of_the_worker_is_in_its_log(server: Running) -> None:
    code, _, errors = server.run("raise ValueError('wrong')")

    assert code == 1
    assert errors.endswith("ValueError: wrong\n")


def test_a_killed_worker_ends_its_launcher_in_the_same_way(server: Running) -> None:
    worker = started(server)
    child(server).kill()

    errors = worker.communicate(timeout=60)[1]

    assert worker.returncode == -signal.SIGKILL
    assert errors == "This worker was ended by SIGKILL\n"


def test_signals_reach_the_worker(server: Running) -> None:
    source = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); "
    worker = started(server, f"{source}print('up', flush=True); signal.pause()")

    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)

    assert worker.returncode == 3


def test_a_worker_whose_launcher_is_killed_ends(server: Running) -> None:
    worker = started(server)
    forked = child(server)

    worker.kill()
    worker.communicate(timeout=60)

    wait_for(lambda: has_ended(forked))


def test_an_ended_worker_leaves_no_zombie(server: Running) -> None:
    server.run("")

    assert server.process().children() == []


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"OMP_NUM_THREADS": "1"}, "OMP_NUM_THREADS differ"),
        ({"FREE": "other"}, "FREE differ"),
    ],
)
def test_other_variables_start_an_ordinary_worker(
    environment: dict[str, str], reason: str, server: Running
) -> None:
    code, output, errors = server.run(FORKED, **environment)

    assert (code, output) == (0, "False\n")
    assert reason in errors


def test_an_archive_with_another_version_of_a_package_starts_an_ordinary_worker(
    server: Running,
) -> None:
    own = server.folder / "own"
    own.mkdir()
    (own / "colorsys.py").touch()

    _, output, errors = server.run(FORKED, PYTHONPATH=str(own))

    assert output == "False\n"
    assert "modules named colorsys" in errors


@pytest.mark.parametrize(
    "yaml",
    ["handler: {engine: vllm}", "parallelType: custom", "torchrun: {nproc-per-node: 2}"],
)
def test_a_model_with_processes_of_its_own_starts_an_ordinary_worker(
    yaml: str, server: Running
) -> None:
    manifest = server.folder / "MAR-INF" / "MANIFEST.json"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text('{"model": {"configFile": "model-config.yaml"}}')
    (server.folder / "model-config.yaml").write_text(yaml)

    output = server.run(FORKED)[1]
    (server.folder / "model-config.yaml").write_text("minWorkers: 1")

    assert output == "False\n"
    assert server.run(FORKED)[1] == "True\n"


def test_another_program_is_not_forked(server: Running) -> None:
    process = server.start(FORKED, name="other.py")

    assert process.communicate(timeout=60) == ("False\n", "")


def test_without_a_server_an_ordinary_worker_starts(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        process = server.process()
        process.kill()
        wait_for(lambda: has_ended(process))
        code, output, errors = server.run(f"{FORKED}; import sys; sys.exit(5)")

    assert (code, output) == (5, "False\n")
    assert "imports all packages itself" in errors


def test_the_server_and_workers_end_with_torchserve(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        worker = started(server)
        process, forked = server.process(), child(server)
        server.program.kill()
        server.program.wait()
        worker.communicate(timeout=60)

    wait_for(lambda: has_ended(process) and has_ended(forked))


def test_no_more_workers_load_than_there_are_slots(tmp_path: Path) -> None:
    """The second worker starts when the first one has loaded its model, not when it ends."""
    source = f"print('up', flush=True); input(); {LOAD}input()"
    write_loader(tmp_path)
    path = {"PYTHONPATH": str(tmp_path)}
    with running(tmp_path, slots=1) as server:
        first = server.start(source, environment=path)
        assert first.stdin
        assert first.stdout
        assert first.stdout.readline() == "up\n"
        second = server.start(source, environment=path)
        assert len(server.process().children()) == 1

        first.stdin.write("\n")
        first.stdin.flush()
        assert second.stdout
        assert second.stdout.readline() == "up\n"
        assert len(server.process().children()) == 2
        for worker in (first, second):
            worker.kill()
            worker.communicate(timeout=60)


def test_a_worker_that_dies_while_it_loads_lets_the_next_one_start(tmp_path: Path) -> None:
    with running(tmp_path, slots=1) as server:
        first = started(server)
        second = server.start(READY)
        first.kill()
        first.communicate(timeout=60)
        assert second.stdout
        assert second.stdout.readline() == "up\n"
        second.communicate("\n", timeout=60)


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    source = (
        "import ctypes, threading\n"
        "def wait():\n"
        "    ctypes.CDLL(None).prctl(15, b'an_allocator', 0, 0, 0)\n"
        "    named.set(); threading.Event().wait()\n"
        "named = threading.Event()\n"
        "threading.Thread(target=wait, daemon=True).start(); named.wait()"
    )
    (tmp_path / "starts_threads.py").write_text(source)
    with running(tmp_path, ["starts_threads"], PYTHONPATH=str(tmp_path)) as server:
        _code, output, errors = server.run(FORKED)
        log = server.log()

    assert output == "False\n"
    assert "have started threads: an_allocator" in log
    assert "the fork server has ended; fork_server.log has the reason" in errors


def test_the_allocator_of_pyarrow_starts_no_thread(tmp_path: Path) -> None:
    source = "import os; print(os.environ['JE_ARROW_MALLOC_CONF'], flush=True)"
    (tmp_path / "pyarrow.py").write_text(source)
    with running(tmp_path, ["pyarrow"], PYTHONPATH=str(tmp_path)) as server:
        server.run(FORKED)
        log = server.log()

    assert log.startswith("background_thread:false\n")


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A kit with a module `tasks.ner`, and with files that are not packed."""
    package = tmp_path / "kit" / "handlers"
    (package / "tasks").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tasks" / "__init__.py").touch()
    (package / "tasks" / "ner.py").write_text("LABELS = 3\n")
    (package / "page.html").write_text("<p>")
    (package / "__pycache__").mkdir()
    for unpacked in (".hidden", "__pycache__/x.cpython-311.pyc", "__pycache__/x.pyc.140"):
        (package / unpacked).touch()
    return package


@pytest.mark.parametrize("changed", [None, "tasks/ner.py", "page.html", "new.py"])
def test_the_kit_is_shared_with_archives_that_have_the_same_one(
    changed: str | None, kit: Path, tmp_path: Path
) -> None:
    source = f"import handlers.tasks.ner; print(handlers.__path__); {FORKED}"
    model = tmp_path / "model"
    model.mkdir()
    unpacked = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(kit, model / "handlers", ignore=unpacked)
    if changed:
        (model / "handlers" / changed).write_text("LABELS = 4\n")
    with running(model, ["handlers.tasks.*"], package=kit) as server:
        _, output, errors = server.run(source, PYTHONPATH=str(model))
        copied = str(server.server.folder)

    path, forked = output.splitlines()
    assert forked == str(changed is None)
    assert (copied in path) == (changed is None)
    assert ("modules named handlers" in errors) == (changed is not None)


def test_a_package_that_the_kit_has_not_imported_is_no_reason(kit: Path, tmp_path: Path) -> None:
    with running(tmp_path / "kit", package=kit) as server:
        assert server.run(FORKED, PYTHONPATH=str(tmp_path / "kit"))[1] == "True\n"


def test_a_program_starts_where_there_can_be_no_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    server = ForkServer(folder, tmp_path / "fork_server.log", MODULES, package=None)
    assert server.write_launcher()

    program = [sys.executable, "-IS", "-c", "print('started')"]
    output = subprocess.check_output(server.command(program), text=True)
    worker = tmp_path / "model_service_worker.py"
    worker.write_text(FORKED)

    assert output == "started\n"
    assert "There is no fork server" in server.log.read_text()
    assert subprocess.check_output([server.python, worker], text=True) == "False\n"


def test_a_launcher_that_cannot_be_executed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that forbids it says so to os.access."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert not ForkServer(tmp_path, tmp_path / "log").write_launcher()


def test_the_fork_server_is_off_on_request() -> None:
    assert not is_on({"FORK_SERVER": "off"})
    assert is_on({}) == (sys.platform == "linux")


LONG = LOADING_SECONDS + 1
# TorchServe's limit for the start of a worker.
LATCH = 120.0


@pytest.mark.parametrize(
    ("waited", "loading", "expected"),
    [
        (0, [], True),
        (0, [1.0], True),
        (0, [1.0, 2.0], False),
        (0, [1.0, LONG], True),
        (LONG, [1.0, 2.0], True),
    ],
)
def test_a_slot_is_free_when_a_worker_has_loaded_or_takes_too_long(
    waited: float, loading: list[float], expected: bool
) -> None:
    assert has_turn(waited, loading, slots=2) is expected


def test_the_next_turn_is_when_the_first_one_has_waited_or_loaded_long_enough() -> None:
    assert next_turn([], [1.0]) is None
    assert next_turn([1.0, 2.0], [5.0]) == LOADING_SECONDS - 5
    assert next_turn([LONG], []) == 0
    assert next_turn([3.0], [LONG]) == LOADING_SECONDS - 3


def test_the_longest_wait_is_below_the_limit_of_torchserve() -> None:
    assert GREETING_SECONDS + LOADING_SECONDS < LATCH
