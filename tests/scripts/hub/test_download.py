from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint, WrongConfig
from scripts.hub.checkpoint_source import Source
from scripts.hub.client import Hub
from scripts.hub.download import check_folder, download, find_downloaded
from scripts.hub.errors import RevisionNotFound, UnsafeListing
from tests.sentences import refused
from tests.standins.checkpoints import write_checkpoint
from tests.standins.hub import LocalHub

REQUIRED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def handler(**more: object) -> HandlerSection:
    return HandlerSection.model_validate(
        {"mode": "sequence_classification", "model_name": "org/name", **more}
    )


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The folder to download to."""
    return tmp_path / "models" / "name"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_required_files_are_downloaded(hub: LocalHub, target: Path) -> None:
    source = download(handler(), target, Hub(hub.url))
    assert names(target) == [".source.json", *REQUIRED]
    assert Source.read(target) == source
    assert sorted(source.files) == REQUIRED
    assert AutoModelForSequenceClassification.from_pretrained(target).num_labels == 2


def test_files_in_sub_folders_are_not_part_of_the_checkpoint(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    stored = shutil.copytree(checkpoint, tmp_path / "stored")
    nested = ("original/tokenizer.model", "original/consolidated.00.pth", "chat_templates/a.jinja")
    for name in nested:
        (stored / name).parent.mkdir(exist_ok=True)
        (stored / name).write_text("not needed")
    with LocalHub({"org/name": stored}) as hub:
        hub.repositories["org/name"].add("tokenizer.json/x.model", stored / "config.json")
        download(handler(), target, Hub(hub.url))
        assert not any(hub.requests(name) for name in (*nested, "x.model"))
    assert names(target) == [".source.json", *REQUIRED]


@pytest.mark.parametrize("name", ["../../outside.model", "sub/../../../outside.model"])
def test_a_hostile_hub_writes_nothing_outside_the_folder(
    hub: LocalHub, checkpoint: Path, target: Path, tmp_path: Path, name: str
) -> None:
    (target.parent / ".incomplete" / "sub").mkdir(parents=True)
    hub.repositories["org/name"].add(name, checkpoint / "config.json")
    with pytest.raises(UnsafeListing):
        download(handler(), target, Hub(hub.url))
    assert not list(tmp_path.rglob("outside*"))
    assert not target.exists()


def test_weights_whose_index_lists_shards_in_sub_folders_are_rejected(
    target: Path, tmp_path: Path
) -> None:
    stored = write_checkpoint(tmp_path / "stored", shards=True)
    (stored / "sub").mkdir()
    for shard in stored.glob("model-*.safetensors"):
        shard.rename(stored / "sub" / shard.name)
    index = stored / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-", "sub/model-"))
    with (
        LocalHub({"org/name": stored}) as hub,
        refused(WrongCheckpoint, "model.safetensors.index.json"),
    ):
        download(handler(), target, Hub(hub.url))
    assert not target.exists()


def test_a_complete_checkpoint_is_found_if_it_matches_the_config(
    hub: LocalHub, target: Path
) -> None:
    assert find_downloaded(handler(), target) is None
    source = download(handler(), target, Hub(hub.url))
    assert find_downloaded(handler(), target) == source
    assert find_downloaded(handler(revision=source.commit[:7]), target) == source
    assert find_downloaded(handler(revision="v2"), target) is None
    (target / "model.safetensors").unlink()
    assert find_downloaded(handler(), target) is None


def test_a_new_commit_replaces_the_checkpoint_and_an_unknown_revision_keeps_it(
    hub: LocalHub, target: Path, tmp_path: Path
) -> None:
    old = download(handler(), target, Hub(hub.url))
    new = hub.push("org/name", write_checkpoint(tmp_path / "new", shards=True))
    with pytest.raises(RevisionNotFound):
        download(handler(revision="v9"), target, Hub(hub.url))
    assert Source.read(target) == old
    assert download(handler(revision=new), target, Hub(hub.url)).commit == new
    assert "model.safetensors" not in names(target)


def test_only_shards_listed_by_the_index_are_downloaded(target: Path, tmp_path: Path) -> None:
    stored = write_checkpoint(tmp_path / "stored", shards=True)
    shards = [path.name for path in stored.glob("model-*.safetensors")]
    shutil.copy(stored / shards[0], stored / "model-00009-of-00009.safetensors")
    with LocalHub({"org/name": stored}) as hub:
        source = download(handler(), target, Hub(hub.url))
    assert len(shards) > 1
    assert {name for name in source.files if name.startswith("model-")} == set(shards)
    assert AutoModelForSequenceClassification.from_pretrained(target).num_labels == 2


def test_a_checkpoint_without_a_head_is_rejected_before_its_weights_are_downloaded(
    target: Path, tmp_path: Path
) -> None:
    with LocalHub({"org/name": write_checkpoint(tmp_path / "stored", head="")}) as hub:
        with refused(WrongCheckpoint):
            download(handler(), target, Hub(hub.url))
        assert not hub.requests("model.safetensors")
        assert not target.exists()
        download(handler(allow_random_head=True, num_labels=5), target, Hub(hub.url))
    assert "model.safetensors" in names(target)


def test_pickled_weights_are_rejected_unless_allowed(target: Path, tmp_path: Path) -> None:
    with LocalHub({"org/name": write_checkpoint(tmp_path / "stored", pickle=True)}) as hub:
        with refused(WrongCheckpoint):
            download(handler(), target, Hub(hub.url))
        assert not hub.requests("pytorch_model.bin")
        source = download(handler(allow_pickle=True), target, Hub(hub.url))
    assert "pytorch_model.bin" in source.files


def test_a_repository_with_custom_code_is_rejected(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    stored = shutil.copytree(checkpoint, tmp_path / "stored")
    custom = {"model_type": "custom", "auto_map": {"AutoConfig": "modeling_custom.Config"}}
    (stored / "config.json").write_text(json.dumps(custom))
    with LocalHub({"org/name": stored}) as hub:
        with refused(WrongCheckpoint, "config.json"):
            download(handler(), target, Hub(hub.url))
        assert not hub.requests("modeling_custom.py")


def test_a_folder_created_by_the_user_is_replaced_only_with_force(
    hub: LocalHub, target: Path
) -> None:
    target.mkdir(parents=True)
    (target / "mine").touch()
    with refused(WrongCheckpoint, "--force"):
        download(handler(), target, Hub(hub.url))
    assert names(target) == ["mine"]
    download(handler(), target, Hub(hub.url), force=True)
    assert "mine" not in names(target)


def test_a_local_folder_is_checked_in_place(checkpoint: Path, tmp_path: Path) -> None:
    size, files = check_folder(handler(), checkpoint)
    assert files == len(REQUIRED)
    assert size == sum((checkpoint / name).stat().st_size for name in REQUIRED)
    with refused(WrongCheckpoint, 2):
        check_folder(handler(num_labels=3), checkpoint)


@pytest.mark.parametrize(
    ("model_name", "facts"),
    [(None, ["handler.model_name"]), ("./gone", ["./gone"])],
)
def test_a_config_without_a_model_is_rejected(
    hub: LocalHub, target: Path, model_name: str | None, facts: list[str]
) -> None:
    with refused(WrongConfig, *facts):
        download(handler(model_name=model_name), target, Hub(hub.url))
