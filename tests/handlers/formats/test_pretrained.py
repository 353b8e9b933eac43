from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.modes import cases, each_mode
from tests.sentences import Sentence, refused
from tests.serving import Served

MODE = "sequence_classification"


def torch_weights(model: Served) -> list[torch.Tensor]:
    module: Any = model.engine.model
    return list(module.module.parameters())


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def without_head(folder: Path) -> None:
    body = {name: each for name, each in weights(folder).items() if "classifier" not in name}
    save_file(body, folder / "model.safetensors", metadata={"format": "pt"})


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def resized(folder: Path) -> None:
    tensors = weights(folder)
    tensors["classifier.weight"] = torch.zeros(7, 32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def pickled(folder: Path) -> None:
    torch.save(weights(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (without_head, ["weights"]),
        (truncated, ["weights"]),
        (resized, ["weights"]),
        (pickled, ["weights"]),
        (lambda folder: (folder / "model.safetensors").unlink(), ["weights"]),
    ],
)
def test_weights_that_do_not_fit_stop_the_load(
    tmp_path: Path, change: Callable[[Path], None], facts: list[str]
) -> None:
    change(tiny.write(tmp_path, MODE))
    with pytest.raises(WrongCheckpoint) as caught:
        Served(tmp_path, MODE)
    assert str(caught.value) == Sentence(*facts)


def test_a_random_head_of_any_size_is_served_if_the_yaml_allows_it(tmp_path: Path) -> None:
    without_head(tiny.write(tmp_path, MODE))
    answer = Served(tmp_path, MODE, allow_random_head=True, num_labels=7).ask("Ada", top_k=None)
    assert {item["label"] for item in answer} == {f"LABEL_{number}" for number in range(7)}


def test_pickled_weights_are_read_if_the_yaml_allows_them(tmp_path: Path) -> None:
    expected = Served(tiny.write(tmp_path, MODE), MODE).ask("Ada sings")
    pickled(tmp_path)
    assert Served(tmp_path, MODE, allow_pickle=True).ask("Ada sings") == expected


def test_sharded_weights_are_read(tmp_path: Path) -> None:
    expected = Served(tiny.write(tmp_path, MODE), MODE).ask("Ada sings")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert Served(tmp_path, MODE).ask("Ada sings") == expected


def test_a_missing_shard_stops_the_load(tmp_path: Path) -> None:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        tiny.write(tmp_path, MODE)
    )
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    next(tmp_path.glob("model-*.safetensors")).unlink()
    with refused(WrongCheckpoint):
        Served(tmp_path, MODE)


def test_bfloat16_gives_nearly_the_same_answer(served: Any) -> None:
    (exact,) = served(MODE).ask("A fine film")
    (near,) = served(MODE, dtype="bfloat16").ask("A fine film")
    assert near["label"] == exact["label"]
    assert near["score"] == pytest.approx(exact["score"], abs=0.05)
    assert near["score"] != exact["score"]


@pytest.mark.parametrize(
    "mode", each_mode(mode for mode in modes() if not tasks.get(mode).description.generation.images)
)
def test_no_weight_is_copied_for_each_row(served: Callable[..., Served], mode: str) -> None:
    """torch does so where strided hidden states of several rows meet a weight without gradients."""
    model = served(mode, dtype="bfloat16")
    weights = [each for each in torch_weights(model) if each.ndim == 2]
    request = {"inputs": cases(mode).inputs[0], "parameters": cases(mode).brief}
    with torch.profiler.profile(record_shapes=True) as profile:
        assert [status for status, _ in model.post(request, request)] == [200, 200]
    products = [event.input_shapes[1] for event in profile.events() if event.name == "aten::bmm"]
    expanded = {(each.shape[1], each.shape[0]) for each in weights}
    assert not [shape for shape in products if tuple(shape[1:]) in expanded]
