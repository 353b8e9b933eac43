from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.contents import contents
from hf_serve.scripts.archives.load_check import ArchiveLoadError, check_loads, share_imports
from tests.sentences import refused
from tests.standins.archives import write_handlers

Check = Callable[[Path, str], bytes | None]


@pytest.fixture(params=["alone", "forked"])
def check(request: pytest.FixtureRequest) -> Iterator[Check]:
    """Each archive has an interpreter for itself, or is loaded in a fork of one for all."""
    if request.param == "alone":
        yield check_loads
    else:
        with share_imports(["colorsys"]) as shared_imports:
            yield partial(check_loads, shared_imports=shared_imports)


def unpacked(folder: Path, config_path: Path, handlers: Path) -> Path:
    ARCHIVE_FORMATS["no-archive"].write(
        folder, "qa", contents(config_path, handlers=handlers), lambda _: None
    )
    return folder


def test_a_handler_receives_the_context_of_a_worker(
    tmp_path: Path, config_path: Path, check: Check
) -> None:
    expected = {"model_dir": str(tmp_path / "qa"), "gpu_id": None, "batch_size": 1}
    load = f"""import os
    assert context.system_properties == {expected!r}, context.system_properties
    assert context.model_yaml_config["handler"]["mode"] == "question_answering"
    assert context.manifest["model"]["modelName"] == "qa"
    assert os.getcwd() == context.system_properties["model_dir"], os.getcwd()
    assert os.environ["HF_HUB_OFFLINE"] == "1" """

    check(unpacked(tmp_path / "qa", config_path, write_handlers(tmp_path / "h", load)), "qa")


def test_modules_of_the_repository_cannot_be_imported(
    tmp_path: Path, config_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))
    handlers = write_handlers(tmp_path / "h", "import scripts")

    with refused(ArchiveLoadError, "scripts"):
        check(unpacked(tmp_path / "qa", config_path, handlers), "qa")


def test_the_reason_is_the_message_of_an_error_of_the_kit(
    tmp_path: Path, config_path: Path, check: Check
) -> None:
    handlers = write_handlers(
        tmp_path / "h", "from handlers.errors import E; raise E('correct it.')"
    )
    (handlers / "errors.py").write_text("class E(Exception): pass")

    with pytest.raises(ArchiveLoadError) as raised:
        check(unpacked(tmp_path / "qa", config_path, handlers), "qa")

    assert raised.value.reason == "correct it."


def test_handlers_imported_from_another_folder_are_rejected(
    tmp_path: Path, config_path: Path, check: Check
) -> None:
    elsewhere = write_handlers(tmp_path / "elsewhere" / "handlers")
    handlers = write_handlers(tmp_path / "h")
    entry = handlers / "transformers_handler.py"
    reach = f"import sys; sys.path.insert(0, {str(elsewhere.parent)!r})\n"
    entry.write_text(reach + entry.read_text())

    with refused(ArchiveLoadError, "handlers"):
        check(unpacked(tmp_path / "qa", config_path, handlers), "qa")


def test_an_exit_without_a_traceback_is_reported_with_its_code(
    tmp_path: Path, config_path: Path, check: Check
) -> None:
    handlers = write_handlers(tmp_path / "h", "import os; os._exit(7)")

    with refused(ArchiveLoadError, 7):
        check(unpacked(tmp_path / "qa", config_path, handlers), "qa")


def test_the_folder_is_not_modified(
    tmp_path: Path, config_path: Path, check: Check, handlers: Path
) -> None:
    folder = unpacked(tmp_path / "qa", config_path, handlers)
    before = sorted(folder.rglob("*"))

    check(folder, "qa")

    assert sorted(folder.rglob("*")) == before


def test_a_module_of_the_archive_comes_before_an_installed_one(
    tmp_path: Path, config_path: Path, check: Check
) -> None:
    handlers = write_handlers(tmp_path / "h", "import colorsys; assert colorsys.OWN")
    folder = unpacked(tmp_path / "qa", config_path, handlers)
    (folder / "colorsys.py").write_text("OWN = True\n")

    check(folder, "qa")


def test_an_archive_after_one_that_fails_is_loaded(
    tmp_path: Path, config_path: Path, check: Check
) -> None:
    broken = unpacked(tmp_path / "broken", config_path, write_handlers(tmp_path / "b", "{}['x']"))
    fine = unpacked(tmp_path / "qa", config_path, write_handlers(tmp_path / "h"))

    with refused(ArchiveLoadError, "KeyError", "x"):
        check(broken, "broken")
    check(fine, "qa")
