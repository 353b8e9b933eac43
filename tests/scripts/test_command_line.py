"""No command ends in a traceback."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hf_serve.handlers.errors import KitError
from hf_serve.hosts.command_line import CLOSED_OUTPUT, module_command, plain_errors, sentence_of
from hf_serve.scripts import run_model
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.ports import Ports
from hf_serve.scripts.serving.properties import default_ports
from tests.standins.archives import ECHO, write_archive

# They run without typer, or in an environment of their own, and have tests below.
OTHERS = {
    *("__init__", "command_line", "default_modes", "installation", "lock_requirements", "paths"),
    "terminal",
}
MODULES = sorted({path.stem for path in (ROOT / "scripts").glob("*.py")} - OTHERS)


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions that typer runs."""
    for name in MODULES:
        module = import_module(f"hf_serve.scripts.{name}")
        app = getattr(module, "app", None)
        if app is None:
            yield name, module.main
            continue
        if app.registered_callback:
            yield f"{name} (callback)", app.registered_callback.callback
        for each in app.registered_commands:
            yield f"{name} {each.callback.__name__}", each.callback


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unexpected_exception_is_a_sentence(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        COMMANDS[name](no_such_argument=1)
    error = capsys.readouterr().err
    assert ended.value.code == 1
    assert "TypeError" in error and "SHOW_TRACEBACK=1" in error and "Traceback" not in error


def fail(error: BaseException) -> Callable[..., Any]:
    def raise_error(*_: Any, **__: Any) -> Any:
        raise error

    return raise_error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KitError("The disk is full; remove a model."), 1, ["The disk is full; remove a model."]),
        (PermissionError(13, "Permission denied", "/ro/x"), 1, ["/ro/x: Permission denied; name"]),
        (OSError(28, "No space left on device"), 1, ["No space left on device; free disk space."]),
        (OSError(95, "Operation not supported", "x"), 1, ["OSError", "SHOW_TRACEBACK=1"]),
        (RuntimeError(), 1, ["RuntimeError", "test_command_line.py, line "]),
        (KeyboardInterrupt(), 130, ["Interrupted."]),
    ],
)
def test_an_error_becomes_a_sentence_and_an_exit_code(
    error: BaseException, code: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        plain_errors()(fail(error))()
    said = capsys.readouterr().err
    assert ended.value.code == code
    assert "Traceback" not in said
    assert all(word in said for word in words), said


def test_the_environment_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOW_TRACEBACK", "1")
    with pytest.raises(SystemExit):
        plain_errors()(fail(ValueError("odd")))()
    assert "Traceback" in (said := capsys.readouterr().err) and "ValueError: odd" in said


def run(module: str, *arguments: str) -> tuple[int, str]:
    """Run a command in this process, as typer does."""
    found = import_module(f"scripts.{module}")
    app = getattr(found, "app", None)
    if app is None:
        app = typer.Typer()
        app.command()(found.main)
    ended = CliRunner().invoke(app, list(arguments))
    return ended.exit_code, ended.output


def test_a_yaml_that_is_a_folder_is_named(tmp_path: Path) -> None:
    facts = {"download_models": "YAML", "create_archive": "YAML", "doctor": "directory"}
    for module, fact in facts.items():
        code, said = run(module, str(tmp_path))
        assert code == 1 and str(tmp_path) in said and fact in said, module


def test_a_work_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "work").touch()
    (store := tmp_path / "store").mkdir()
    write_archive(store, "echo", ECHO)
    code, said = run("serve", "start", "--workdir", str(file), "--model-store", str(store))
    assert code == 1 and "Traceback" not in said and str(file) in said


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}', '{"ports": 3}'])
@pytest.mark.parametrize(
    ("module", "file"), [("serve", "server.json"), ("serve_kserve", "kserve_server.json")]
)
def test_a_state_file_that_is_damaged_is_named(
    tmp_path: Path, module: str, file: str, text: str
) -> None:
    (tmp_path / file).write_text(text)
    for verb in ("stop", "status"):
        code, said = run(module, verb, "--workdir", str(tmp_path))
        assert code == 1 and file in said and "remove it" in said, said


def test_default_versions_that_are_damaged_are_named(tmp_path: Path) -> None:
    (tmp_path / "default_versions.json").write_text("{")
    (tmp_path / "model@1.mar").touch()
    workdir = ["--workdir", str(tmp_path / "work")]
    code, said = run("serve", "start", "--model-store", str(tmp_path), *workdir)
    assert code == 1 and "default_versions.json" in said and "remove it" in said


def test_a_sample_that_is_no_json_is_named(tmp_path: Path) -> None:
    (sample := tmp_path / "sample.json").write_text("{")
    code, said = run("rollout", "to", "model", "2.0", "--sample", str(sample))
    assert code == 1 and str(sample) in said and "JSON" in said


@pytest.mark.parametrize("address", ["http://127.0.0.1:x", "http://127.0.0.1:99999"])
def test_a_port_that_is_none_is_named(address: str) -> None:
    with pytest.raises(KitError, match="inference_address"):
        Ports.of({"inference_address": address})
    with pytest.raises(KitError, match="grpc_inference_port"):
        Ports.of({"grpc_inference_port": "x"})


def test_settings_that_cannot_be_read_do_not_end_the_import_of_a_command(tmp_path: Path) -> None:
    (wrong := tmp_path / "config.properties").write_text("inference_address=http://x:y")
    assert default_ports(tmp_path / "missing") == default_ports(wrong) == Ports()
    wrong.write_text("metrics_address=http://127.0.0.1:9082")
    assert default_ports(wrong) == Ports(metrics=9082)


def test_an_interrupt_ends_a_command_with_130_and_no_traceback() -> None:
    program = (
        "import signal, sys, time, scripts.download_models as command\n"
        # A process in the background of a shell ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(*_, **__):\n"
        "    print('waits', flush=True)\n"
        "    time.sleep(60)\n"
        "command.bring = wait\n"
        "sys.argv[1:] = ['a.yaml']\n"
        "command.run()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert "Traceback" not in process.stderr.read()


def test_pip_compile_that_fails_ends_with_its_own_words(tmp_path: Path) -> None:
    """`make lock` runs in an environment without typer; pip-compile says what is wrong."""
    broken = tmp_path / "piptools"
    broken.mkdir()
    (broken / "__main__.py").write_text("raise SystemExit('no version fits')")
    ended = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "lock_requirements.py"), "docs"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "no version fits" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "module", ["hf_serve.hosts.asgi", "hf_serve.hosts.kserve", "hf_serve.hosts.torchrun.follow"]
)
def test_a_host_without_an_archive_says_so(module: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert str(tmp_path) in ended.stderr and "Traceback" not in ended.stderr


def test_a_command_ends_quietly_where_nothing_reads_its_output() -> None:
    program = (
        "from hf_serve.hosts.command_line import plain_errors\n"
        "with plain_errors():\n"
        "    while True:\n"
        "        print('line', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", CLOSED_OUTPUT)


def test_a_path_that_the_locale_cannot_write_is_refused(tmp_path: Path) -> None:
    """Libraries would write it in UTF-8, and say that a file of the model is missing."""
    ascii_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "hf_serve", "catalogue", "modèle"],
        env={**os.environ, **ascii_locale},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "modèle" not in done.stderr and "PYTHONUTF8=1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_that_of_the_copy() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "source.mar", None, "copy.mar")
    assert sentence_of(error).startswith("copy.mar: No space left")


@pytest.mark.parametrize(("bypass", "is_named"), [("", True), ("127.0.0.1", False)])
def test_clients_are_told_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, bypass: str, is_named: bool
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, bypass)
    assert ("NO_PROXY=127.0.0.1" in run_model._try_it(["curl"])) is is_named


def test_a_module_of_the_kit_imports_nothing_of_the_folder_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typer.py").write_text("raise RuntimeError('of the user')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = module_command("hf_serve.hosts.asgi", "--help")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(ROOT)
    assert "-P" not in module_command("hf_serve.hosts.asgi")
