from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.scripts.archives.contents import contents
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.hub.catalogue import read_catalogue
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.download import (
    Source,
    bring_adapters,
    check_folder,
    download,
    find_downloaded,
)
from hf_serve.scripts.hub.errors import RevisionNotFound, UnsafeListing
from tests import tiny, tiny_adapters, tiny_gliner
from tests.catalogue import checkpoints as catalogued
from tests.sentences import refused
from tests.serving import Served
from tests.standins.archives import write_yaml
from tests.standins.checkpoints import write_checkpoint
from tests.standins.hub import LocalHub
from tests.tiny_gliner import Kind

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


def test_all_files_of_a_model_with_its_own_code_are_downloaded(
    target: Path, tmp_path: Path
) -> None:
    stored = tmp_path / "stored"
    (stored / "code").mkdir(parents=True)
    for name in ("words.txt", "code/inference.py", ".gitattributes"):
        (stored / name).write_text("def model_fn(model_dir): ...", encoding="utf-8")
    with LocalHub({"org/name": stored}) as hub:
        source = download(handler(mode="custom", custom="code/inference.py"), target, Hub(hub.url))
    assert sorted(source.files) == ["code/inference.py", "words.txt"]
    assert (target / "code" / "inference.py").is_file()


def test_own_code_of_a_checkpoint_is_downloaded_with_it(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    stored = shutil.copytree(checkpoint, tmp_path / "stored")
    for name in ("handler.py", "requirements.txt", "other.py"):
        (stored / name).write_text("", encoding="utf-8")
    with LocalHub({"org/name": stored}) as hub:
        download(handler(custom="handler.py"), target, Hub(hub.url))
    assert names(target) == sorted([".source.json", *REQUIRED, "handler.py", "requirements.txt"])


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


COMMIT = "564e9b582944a57a3e586bbb98fd6f0a4118db7f"
SOURCE = Source(model_name="org/name", revision="main", commit=COMMIT, files={"config.json": 2})


def test_a_source_round_trips_through_its_file(tmp_path: Path) -> None:
    SOURCE.write(tmp_path)
    assert Source.read(tmp_path) == SOURCE


@pytest.mark.parametrize("text", [None, "", "{}", "[]"])
def test_a_missing_or_invalid_source_file_is_read_as_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / ".source.json").write_text(text)
    assert Source.read(tmp_path) is None


@pytest.mark.parametrize(
    ("model_name", "revision", "matches"),
    [
        ("org/name", "main", True),
        ("org/name", COMMIT, True),
        ("org/name", COMMIT[:7], True),
        ("org/name", None, False),
        ("org/name", "v2", False),
        ("org/other", "main", False),
    ],
)
def test_a_source_matches_its_model_and_revision(
    model_name: str, revision: str | None, matches: bool
) -> None:
    assert SOURCE.matches(model_name, revision) is matches


def test_a_missing_or_truncated_file_makes_it_incomplete(tmp_path: Path) -> None:
    assert not SOURCE.is_complete_in(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not SOURCE.is_complete_in(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert SOURCE.is_complete_in(tmp_path)


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


@pytest.mark.nightly  # test_lora_files.py loads them, test_archive.py an archive.
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


GLINER = "zero_shot_token_classification"


def test_an_early_gliner_gets_the_tokenizer_and_config_of_its_encoder_and_safetensors(
    target: Path, tmp_path: Path
) -> None:
    stored = tiny_gliner.write(tmp_path / "stored", Kind("Bert", {"hidden_size": 32}, early=True))
    base, early = tmp_path / "base", tmp_path / "early"
    for folder in (base, early):
        folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.move(stored / name, base / name)
    (base / "model.safetensors").write_bytes(b"not needed")
    weights = load_file(stored / "model.safetensors")
    torch.save(weights, early / "pytorch_model.bin")
    shutil.move(stored / "gliner_config.json", early / "gliner_config.json")
    with LocalHub({"org/name": early, "microsoft/deberta-v3-small": base}) as hub:
        source = download(handler(mode=GLINER), target, Hub(hub.url))
    expected = ["config.json", "gliner_config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(source.files) == [*expected, "tokenizer_config.json"]
    assert source.is_complete_in(target)
    written = load_file(target / "model.safetensors")
    assert written.keys() == weights.keys()
    assert all(torch.equal(written[name], weights[name]) for name in weights)
    assert Served(target, GLINER).ask({"text": "Nina sings.", "labels": "person"}, threshold=0.0)


def test_a_pickle_of_a_gliner_with_more_than_tensors_is_refused(
    target: Path, tmp_path: Path
) -> None:
    stored = tiny_gliner.write(tmp_path / "stored", Kind("Bert", {"hidden_size": 32}))
    (stored / "model.safetensors").unlink()
    torch.save({"weight": Path("elsewhere")}, stored / "pytorch_model.bin")
    with (
        LocalHub({"org/name": stored}) as hub,
        refused(WrongCheckpoint, "pytorch_model.bin", "safetensors"),
    ):
        download(handler(mode=GLINER), target, Hub(hub.url))
    assert not target.exists()


def test_a_gliner_that_is_not_served_is_refused_before_its_weights_are_downloaded(
    target: Path, tmp_path: Path
) -> None:
    kind = Kind("Bert", {"hidden_size": 32, "labels_encoder": "BAAI/bge-small-en-v1.5"})
    stored = tiny_gliner.write(tmp_path / "stored", kind)
    with (
        LocalHub({"org/name": stored}) as hub,
        refused(WrongCheckpoint, "gliner_config.json", "labels_encoder"),
    ):
        download(handler(mode=GLINER), target, Hub(hub.url))
    assert "model.safetensors" not in hub.sent


def test_a_gliner2_has_the_config_of_its_encoder_or_is_refused_before_its_weights(
    target: Path, tmp_path: Path
) -> None:
    stored = tiny_gliner.write_gliner2(tmp_path / "stored", Kind("Bert"))
    with LocalHub({"org/name": stored}) as hub:
        source = download(handler(mode=GLINER), target, Hub(hub.url))
        assert "encoder_config/config.json" in source.files
        assert (target / "encoder_config" / "config.json").is_file()
    path = stored / "config.json"
    config = {**json.loads(path.read_text("utf-8")), "architecture": "boundary"}
    path.write_text(json.dumps(config), encoding="utf-8")
    with (
        LocalHub({"org/name": stored}) as hub,
        refused(WrongCheckpoint, "config.json", "boundary"),
    ):
        download(handler(mode=GLINER), tmp_path / "other", Hub(hub.url))
    assert "model.safetensors" not in hub.sent


def test_bge_m3_gets_safetensors_and_keeps_the_layers_of_its_tokens(
    target: Path, tmp_path: Path
) -> None:
    stored = catalogued.write(read_catalogue()["bge-m3"], tmp_path / "stored")
    weights = load_file(stored / "model.safetensors")
    torch.save(weights, stored / "pytorch_model.bin")
    (stored / "model.safetensors").unlink()
    with LocalHub({"org/name": stored}) as hub:
        source = download(handler(mode="sentence_embedding"), target, Hub(hub.url))
    assert source.files.keys() >= {"colbert_linear.pt", "sparse_linear.pt", "model.safetensors"}
    assert "pytorch_model.bin" not in source.files
    assert Served(target, "sentence_embedding").ask("Nina sings.", return_sparse=True)
