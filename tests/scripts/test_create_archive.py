from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.standins.archives import write_weightless, write_yaml

pytestmark = pytest.mark.server  # the command is another process

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "create_archive.py"


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    return write_yaml(tmp_path / "qa.yaml", write_weightless(tmp_path / "weightless"))


def run(folder: Path, *arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments), "--export-path", "store"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    return ended.returncode, ended.stdout, ended.stderr


def test_an_archive_is_printed_with_its_path_and_a_second_run_changes_nothing(
    tmp_path: Path, config_path: Path
) -> None:
    code, out, err = run(tmp_path, config_path, "--no-check")

    assert (code, err) == (0, "")
    assert "store/qa.mar" in out
    assert (tmp_path / "store" / "qa.mar").is_file()

    code, out, _ = run(tmp_path, config_path)

    assert code == 0
    assert "unchanged" in out


def test_requirements_of_a_models_own_code_are_named_and_not_installed(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "handler.py").write_text("class EndpointHandler: ...", encoding="utf-8")
    (model / "requirements.txt").write_text("no_such_package", encoding="utf-8")
    own = write_yaml(tmp_path / "own.yaml", model, mode="custom", custom="handler.py")

    code, _, err = run(tmp_path, own, "--no-check")

    assert code == 0
    assert f"pip install -r {model / 'requirements.txt'}" in " ".join(err.split())


@pytest.mark.nightly
def test_the_format_of_auto_is_printed_with_its_reason_each_time(
    tmp_path: Path, config_path: Path
) -> None:
    fastest = write_yaml(tmp_path / "fastest.yaml", tmp_path / "weightless", save_mode="auto")
    for note in ("", "unchanged"):
        code, out, _ = run(tmp_path, fastest, "--no-check")

        assert code == 0
        sentence = " ".join(out.split())
        assert "fastest: save_mode: auto is pretrained, because it is the fastest for" in sentence
        assert note in out


@pytest.mark.parametrize(
    ("form", "name"),
    [("tgz", "qa.tar.gz"), pytest.param("no-archive", "qa", marks=pytest.mark.nightly)],
)
def test_the_other_forms_can_be_asked_for(
    form: str, name: str, tmp_path: Path, config_path: Path
) -> None:
    code, _, _ = run(tmp_path, config_path, "--no-check", "--format", form)

    assert code == 0
    assert [path.name for path in (tmp_path / "store").iterdir()] == [name]


def test_what_cannot_be_packed_is_named_and_the_others_are_packed(
    tmp_path: Path, config_path: Path
) -> None:
    misspelt = write_yaml(tmp_path / "misspelt.yaml", tmp_path, dtipe="float32")
    absent = write_yaml(tmp_path / "absent.yaml", tmp_path / "nowhere")

    code, out, err = run(tmp_path, misspelt, config_path, absent, "--no-check")

    assert code == 1
    assert "qa.mar" in out
    assert "misspelt: " in err
    assert "did you mean 'dtype'?" in err
    assert "scripts/download_models.py" in err
    assert "Not packed: misspelt, absent" in err
    assert "Traceback" not in err


@pytest.mark.nightly  # test_archive.py has it in process, with a handler of a few lines
def test_an_archive_that_does_not_load_is_not_kept(tmp_path: Path, config_path: Path) -> None:
    code, _, err = run(tmp_path, config_path)

    assert code == 1
    assert err.startswith("qa: the archive qa was discarded because it does not load: config.json:")
    assert not list((tmp_path / "store").iterdir())
