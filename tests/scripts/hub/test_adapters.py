"""LoRA adapters of a YAML, downloaded and packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint, WrongConfig
from scripts.archives.contents import contents
from scripts.archives.packing import pack
from scripts.hub.adapters import bring_adapters
from scripts.hub.checkpoint_source import Source
from scripts.hub.client import Hub
from tests import tiny, tiny_adapters
from tests.sentences import refused
from tests.standins.archives import write_yaml
from tests.standins.hub import LocalHub

MODE = "text_generation"
FILES = ["adapter_config.json", "adapter_model.safetensors"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("base"), MODE)


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter as on a hub, with files that are not required."""
    folder = tiny_adapters.write(tmp_path_factory.mktemp("adapter"), base, seed=0)
    (folder / "training_args.bin").write_text("not needed")
    return folder


def section(**adapters: str) -> HandlerSection:
    return HandlerSection(mode=MODE, adapters=adapters)


def bring(hub: LocalHub, folder: Path, source: str, **more: Any) -> list[Path]:
    return bring_adapters(section(french=source), folder, Hub(hub.url), **{"force": False, **more})


def test_an_adapter_is_downloaded_beside_the_checkpoint_once(adapter: Path, tmp_path: Path) -> None:
    with LocalHub({"org/french": adapter}) as hub:
        files = bring(hub, tmp_path, "org/french")
        assert [path.relative_to(tmp_path).as_posix() for path in files] == [
            f"adapters/french/{name}" for name in FILES
        ]
        there = {path.name for path in (tmp_path / "adapters" / "french").iterdir()}
        assert there == {*FILES, ".source.json"}
        bring(hub, tmp_path, "org/french")
        assert len(hub.requests(FILES[1])) == 1
        bring(hub, tmp_path, "org/french", force=True)
        assert len(hub.requests(FILES[1])) == 2


def test_another_revision_replaces_an_adapter(adapter: Path, base: Path, tmp_path: Path) -> None:
    with LocalHub({"org/french": adapter}) as hub:
        bring(hub, tmp_path, "org/french")
        hub.push("org/french", tiny_adapters.write(tmp_path / "new", base, seed=1))
        hub.tag("org/french", "v2")
        (_, weights) = bring(hub, tmp_path, "org/french@v2")
    source = Source.read(tmp_path / "adapters" / "french")
    assert source is not None and source.revision == "v2"
    assert weights.read_bytes() == (tmp_path / "new" / FILES[1]).read_bytes()


def test_a_pickle_is_refused_before_anything_is_downloaded(adapter: Path, tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / FILES[0]).write_bytes((adapter / FILES[0]).read_bytes())
    (pickled / "adapter_model.bin").write_text("a pickle")
    with LocalHub({"org/french": pickled}) as hub:
        with refused(WrongCheckpoint, "org/french"):
            bring(hub, tmp_path / "base", "org/french")
        assert not hub.requests(FILES[0])
    assert not (tmp_path / "base").exists()


def test_settings_that_are_refused_leave_no_folder(base: Path, tmp_path: Path) -> None:
    dora = tiny_adapters.write(tmp_path / "dora", base, seed=0, use_dora=True)
    with LocalHub({"org/french": dora}) as hub:
        with refused(WrongCheckpoint, "use_dora"):
            bring(hub, tmp_path / "base", "org/french")
        assert not hub.requests(FILES[1])
    assert not (tmp_path / "base" / "adapters" / "french").exists()


def test_a_path_without_a_folder_is_refused(tmp_path: Path) -> None:
    with (
        LocalHub({}) as hub,
        refused(WrongConfig, "handler.adapters.french", "./x"),
    ):
        bring(hub, tmp_path, "./x")


@pytest.fixture
def adapted(base: Path, adapter: Path, tmp_path: Path) -> Path:
    """The YAML of a model with two adapters."""
    names = {"french": str(adapter), "dutch": str(adapter)}
    return write_yaml(tmp_path / "adapted.yaml", base, mode=MODE, adapters=names)


def test_an_archive_has_the_adapters(adapted: Path) -> None:
    packed = {name for name in contents(adapted) if name.startswith("adapters/")}
    assert packed == {f"adapters/{name}/{file}" for name in ("french", "dutch") for file in FILES}


@pytest.mark.nightly  # tests/handlers/formats/test_lora.py loads them, test_archive.py an archive.
def test_an_archive_loads_with_its_adapters(adapted: Path, tmp_path: Path) -> None:
    assert pack(adapted, export_path=tmp_path / "store").made


def test_an_adapter_that_is_not_downloaded_is_not_packed(base: Path, tmp_path: Path) -> None:
    config = write_yaml(tmp_path / "a.yaml", base, mode=MODE, adapters={"french": "org/french"})
    with refused(WrongCheckpoint):
        contents(config)


def test_a_format_without_adapters_refuses_them_before_it_exports(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    named = {"adapters": {"french": str(adapter)}, "save_mode": "openvino"}
    config = write_yaml(tmp_path / "exported.yaml", base, mode=MODE, **named)
    with refused(WrongConfig, "handler.adapters", "handler.save_mode", "openvino"):
        contents(config)
