from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import typer
import yaml
from typer.testing import CliRunner

from hf_serve.scripts.archives.archive_formats import FormatName
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.doctor import (
    Finding,
    Installation,
    check_archives,
    check_config,
    check_server,
    main,
)
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving import workdirs
from hf_serve.scripts.serving.logs import SERVER_LOG
from hf_serve.scripts.serving.ports import _listener, free_ports
from hf_serve.scripts.serving.workdirs import SERVER_FOLDER, STORE
from tests.malformed import NESTED_JSON
from tests.sentences import Sentence
from tests.standins.archives import write_handlers, write_weightless, write_yaml

MANIFEST = "MAR-INF/MANIFEST.json"
SAFE = "management_address=http://127.0.0.1:8081\nallowed_urls=none\n"


def level_and_sentence(findings: list[Finding]) -> tuple[str, str]:
    (finding,) = findings
    return finding.level, finding.sentence


@pytest.fixture
def installed(tmp_path: Path) -> Installation:
    """An installation with safe settings and a store without archives."""
    config, store = tmp_path / "config.properties", tmp_path / "model_store"
    store.mkdir()
    keys = "".join(f"{key}={value}\n" for key, value in free_ports().properties().items())
    config.write_text(f"{SAFE}{keys}", encoding="utf-8")
    return Installation(config, store, [], tmp_path / "server")


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("management_address=http://0.0.0.0:8081", ["management_address"]),
        (
            "inference_address=http://0.0.0.0:8080\ndisable_token_authorization=true",
            ["inference_address"],
        ),
        (
            "enable_model_api=true\ndisable_token_authorization=true",
            [],
        ),
        ("allowed_urls=file://.*|http(s)?://.*", ["allowed_urls"]),
    ],
)
def test_a_dangerous_setting_is_a_problem(
    installed: Installation, line: str, facts: list[str]
) -> None:
    installed.config.write_text(f"{SAFE}{line}\n", encoding="utf-8")
    level, sentence = level_and_sentence(list(check_config(installed)))
    assert level == "problem" and sentence == Sentence(*facts)


def test_the_settings_of_the_kit_are_not_dangerous(installed: Installation) -> None:
    shipped = Installation(ROOT / "config.properties", installed.model_store, [], Path("nowhere"))
    assert level_and_sentence(list(check_config(shipped)))[0] == "ok"


@pytest.fixture
def packed(installed: Installation, tmp_path: Path) -> Callable[..., Path]:
    """Pack an archive of a name into the store, for a mode, with more keys of its YAML."""

    def make(name: str, mode: str = "question_answering", **keys: object) -> Path:
        config = write_yaml(tmp_path / f"{name}.yaml", write_weightless(tmp_path / name), mode=mode)
        document = yaml.safe_load(config.read_text(encoding="utf-8"))
        config.write_text(yaml.safe_dump({**document, **keys}), encoding="utf-8")
        handlers = write_handlers(tmp_path / f"{name}-package" / "handlers")
        return pack(
            config, export_path=installed.model_store, handlers=handlers, checked=False
        ).path

    return make


def test_an_archive_that_was_changed_is_a_problem(
    installed: Installation, packed: Callable[..., Path]
) -> None:
    with zipfile.ZipFile(packed("qa"), "a") as archive:
        archive.writestr("sitecustomize.py", "")
    level, sentence = level_and_sentence(list(check_archives(installed)))
    assert (level, sentence) == ("problem", Sentence("qa.mar"))


@pytest.mark.parametrize(
    ("name", "content"), [(MANIFEST, NESTED_JSON), ("config.yaml", "[" * 9999)]
)
def test_an_archive_that_cannot_be_read_is_a_problem(
    installed: Installation, name: str, content: str
) -> None:
    manifest = {"model": {"modelName": "qa", "handler": "h", "configFile": "config.yaml"}}
    files = {MANIFEST: json.dumps(manifest), "config.yaml": "{}", name: content}
    with zipfile.ZipFile(installed.model_store / "qa.mar", "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    level, sentence = level_and_sentence(list(check_archives(installed)))
    assert (level, sentence) == ("problem", Sentence("qa.mar"))


def test_an_archive_of_another_kit_is_to_be_packed_again(
    installed: Installation, packed: Callable[..., Path]
) -> None:
    packed("qa")
    level, sentence = level_and_sentence(list(check_archives(installed)))
    assert level == "advice" and "packed with version unknown of the kit" in sentence


@pytest.mark.parametrize("archive_format", get_args(FormatName))
def test_an_archive_of_each_format_is_read(
    installed: Installation, tmp_path: Path, archive_format: FormatName
) -> None:
    config = write_yaml(tmp_path / "qa.yaml", write_weightless(tmp_path / "qa"))
    store = installed.model_store
    pack(config, archive_format=archive_format, export_path=store, checked=False)
    level, sentence = level_and_sentence(list(check_archives(installed)))
    assert level == "ok" and "qa" in sentence


def test_an_archive_under_another_name_is_a_problem(
    installed: Installation, packed: Callable[..., Path]
) -> None:
    packed("qa").rename(installed.model_store / "other.mar")
    level, sentence = level_and_sentence(list(check_archives(installed)))
    assert (level, sentence) == ("problem", Sentence("qa"))


def test_more_workers_of_continuous_batching_than_torchserve_serves_are_a_problem(
    installed: Installation, packed: Callable[..., Path]
) -> None:
    packed("text", "text_generation", continuousBatching=True, minWorkers=2, maxWorkers=2)
    first, *_ = check_archives(installed)
    facts = "minWorkers", "maxWorkers", 1
    assert (first.level, first.sentence) == ("problem", Sentence(*facts))


def test_one_worker_of_continuous_batching_is_no_problem(
    installed: Installation, packed: Callable[..., Path]
) -> None:
    packed("text", "text_generation", continuousBatching=True, minWorkers=1, maxWorkers=1)
    assert all(found.level != "problem" for found in check_archives(installed))


def test_archives_that_need_more_memory_than_there_is_are_a_problem(
    installed: Installation, packed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_serve.scripts.doctor.memory_limit", lambda: 1 << 30)
    packed("qa")
    *_, last = check_archives(installed)
    assert (last.level, last.sentence) == ("problem", Sentence("1.6 GiB"))


def test_a_port_that_is_taken_is_a_problem(installed: Installation) -> None:
    with _listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        installed.config.write_text(f"inference_address=http://127.0.0.1:{port}\n")
        level, sentence = level_and_sentence(list(check_server(installed)))
    assert level == "problem" and f"Port {port} is in use" in sentence


def test_the_command_exits_with_1_where_something_is_wrong(installed: Installation) -> None:
    app = typer.Typer()
    app.command()(main)
    options = ["--config", str(installed.config), "--model-store", str(installed.model_store)]
    options += ["--workdir", str(installed.workdir)]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    assert "YAML files: " in done.output and "No server runs" in done.output
    wrong = installed.config.with_name("wrong.yaml")
    wrong.write_text("handler: {mode: ner}\n", encoding="utf-8")
    done = CliRunner().invoke(app, [*options, str(wrong)])
    assert done.exit_code == 1
    assert "handler.mode is 'ner'" in done.output and "1 problem." in done.output


@pytest.mark.parametrize("has_run", [False, True])
def test_the_folder_of_run_is_checked_before_its_server_runs_and_after(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_run: bool
) -> None:
    folder = tmp_path / "hf-serve"
    (folder / SERVER_FOLDER / "logs" if has_run else folder).mkdir(parents=True)
    if has_run:
        (folder / SERVER_FOLDER / "logs" / SERVER_LOG).touch()
    config = write_yaml(folder / "qa.yaml", write_weightless(tmp_path / "qa"))
    pack(config, export_path=folder / STORE, checked=False)
    monkeypatch.setattr(workdirs, "STARTED", tmp_path / "build" / "server")
    monkeypatch.setattr(workdirs, "RUN", folder / SERVER_FOLDER)
    app = typer.Typer()
    app.command()(main)
    for option in ([], ["--folder", str(folder)]):
        done = CliRunner().invoke(app, ["--config", str(installed.config), *option])
        assert done.exit_code == 0, done.output
        assert "qa.mar: all files have their sums." in done.output
    config.write_text("handler: {mode: ner}", encoding="utf-8")
    assert "qa.yaml" in CliRunner().invoke(app, ["--config", str(installed.config)]).output
