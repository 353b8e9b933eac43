"""LoRA adapters of a checkpoint, chosen for each request."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer

from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from tests import families, tiny_adapters
from tests.sentences import Sentence, refused
from tests.serving import Served, explanation_of

MODE = "text_generation"
PROMPTS = ("Once upon a time there was a fox", "The café in Zürich", "Ada")
NEW = {"return_full_text": False, "max_new_tokens": 12}
# Names that modules of torch cannot have.
NAMES = ("french", "v1.2", "pop")
CHOICES = (None, *NAMES)
GPT2_PARTS = (
    "transformer.wte",
    "transformer.wpe",
    "transformer.ln_f",
    "lm_head",
    "transformer.h.0",
    "transformer.h.1",
)
LLAMA_PARTS = (
    "model.embed_tokens",
    "model.norm",
    "model.rotary_emb",
    "lm_head",
    "model.layers.0",
    "model.layers.1",
)


@pytest.fixture(scope="module", params=["GPT2", pytest.param("Llama", marks=pytest.mark.nightly)])
def base(request: Any, checkpoint: Callable[..., Path]) -> Path:
    return checkpoint(MODE, family=request.param)


@pytest.fixture(scope="module")
def adapters(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An adapter of all layers, one with ranks and factors for some, one that scales by rank."""
    folder = tmp_path_factory.mktemp("adapters")
    ranks = {
        "target_modules": r".*\.1\..*(c_attn|c_proj|q_proj|down_proj)",
        "rank_pattern": {"down_proj": 2, "c_proj": 2},
        "alpha_pattern": {"q_proj": 3, "c_attn": 3},
    }
    particular: list[dict[str, Any]] = [{}, ranks, {"use_rslora": True, "lora_alpha": 16}]
    return {
        name: tiny_adapters.write(folder / name, base, seed=seed, **settings)
        for seed, (name, settings) in enumerate(zip(NAMES, particular, strict=True))
    }


@pytest.fixture(scope="module")
def model(base: Path, adapters: dict[str, Path]) -> Served:
    named = {name: str(folder) for name, folder in adapters.items()}
    return Served(base, MODE, adapters=named)


def body(prompt: str, adapter: str | None, **parameters: Any) -> Any:
    chosen = {"adapter_id": adapter} if adapter else {}
    return {"inputs": prompt, "parameters": {**NEW, **chosen, **parameters}}


def text_of(model: Served, prompt: str, adapter: str | None) -> str:
    ((status, (answer,)),) = model.post(body(prompt, adapter))
    assert status == 200
    return str(answer["generated_text"])


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_that_of_merged_weights(
    model: Served, base: Path, adapters: dict[str, Path], name: str
) -> None:
    reference, tokenizer = (
        tiny_adapters.merged(base, adapters[name]),
        AutoTokenizer.from_pretrained(base),
    )
    for prompt in PROMPTS:
        encoded = tokenizer(prompt, return_tensors="pt")
        ids = reference.generate(**encoded, max_new_tokens=12, do_sample=False, pad_token_id=0)
        new = ids[0, encoded["input_ids"].shape[1] :]
        expected = tokenizer.decode(new, skip_special_tokens=True)
        assert text_of(model, prompt, name) == expected != text_of(model, prompt, None)


def test_without_an_adapter_the_checkpoint_answers(model: Served, base: Path) -> None:
    alone = Served(base, MODE)
    for prompt in PROMPTS:
        text_of(model, prompt, NAMES[0])
        assert text_of(model, prompt, None) == text_of(alone, prompt, None)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "seed": 3, "num_return_sequences": 2},
        {"prompt_lookup_num_tokens": 2},
        {"details": True, "top_n_tokens": 2},
    ],
)
def test_adapters_share_batches_without_changing_texts(
    model: Served, parameters: dict[str, Any]
) -> None:
    bodies = [body(prompt, name, **parameters) for name in CHOICES for prompt in PROMPTS]
    alone = [_texts(model.post(each)[0]) for each in bodies]
    together = [_texts(reply) for reply in model.post(*bodies)]
    assert together == alone
    assert len({str(texts) for texts in alone[:: len(PROMPTS)]}) == len(CHOICES)


def test_greedy_texts_of_different_adapters_run_in_one_batch(
    model: Served, monkeypatch: Any
) -> None:
    rows = []
    generate = model.engine.model.generate

    def count(batch: Any, *arguments: Any, **named: Any) -> Any:
        rows.append(len(batch["input_ids"]))
        return generate(batch, *arguments, **named)

    monkeypatch.setattr(model.engine.model, "generate", count)
    model.post(*[body(PROMPTS[0], name) for name in CHOICES])
    assert rows == [len(CHOICES)]


def _texts(reply: tuple[int, Any]) -> list[str]:
    status, answers = reply
    assert status == 200, answers
    return [answer["generated_text"] for answer in answers]


def test_an_explanation_is_that_of_the_adapter(model: Served) -> None:
    bodies = [
        explanation_of(
            {"inputs": "Once upon", "parameters": {"max_new_tokens": 2, "adapter_id": name}}
        )
        for name in CHOICES
    ]
    alone = [model.post(each)[0] for each in bodies]
    assert [status for status, _ in alone] == [200] * len(bodies)
    importances = [answer["importances"] for _, answer in alone]
    assert len({str(each) for each in importances}) == len(CHOICES)
    together = [answer["importances"] for _, answer in model.post(*bodies)]
    for found, expected in zip(together, importances, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)


def test_an_unknown_adapter_is_refused_and_harms_no_neighbour(model: Served) -> None:
    (status, answer), (_, (neighbour,)) = model.post(body("Ada", "dutch"), body("Ada", "french"))
    facts = "adapter_id", "dutch", "french", "v1.2", "pop"
    assert (status, answer["message"]) == (422, Sentence(*facts))
    assert neighbour["generated_text"] == text_of(model, "Ada", "french")


def test_a_model_without_adapters_refuses_the_parameter(served: Callable[..., Served]) -> None:
    refused = served(MODE).refuse("Ada", adapter_id="french")
    assert refused[0] == 422
    assert refused[1] == Sentence("adapter_id", "french")


def test_the_yaml_names_a_default_that_null_turns_off(
    base: Path, adapters: dict[str, Path]
) -> None:
    named = {name: str(folder) for name, folder in adapters.items()}
    model = Served(base, MODE, adapters=named, parameters={"adapter_id": "french"})
    default, chosen, off = (
        _texts(model.post({"inputs": "Ada", "parameters": {**NEW, **given}})[0])
        for given in ({}, {"adapter_id": "french"}, {"adapter_id": None})
    )
    assert default == chosen != off


def test_a_description_has_the_names(model: Served) -> None:
    assert model.engine.describe().as_json()["adapters"] == list(NAMES)


def test_weights_have_the_data_type_of_the_model(base: Path, adapters: dict[str, Path]) -> None:
    model = Served(base, MODE, dtype="bfloat16", adapters={"french": str(adapters["french"])})
    loaded: Any = model.engine.model
    parts = [own for parts in loaded._adapters._parts.values() for own in parts.values()]
    assert {each.dtype for part in parts for each in (part.down, part.up)} == {torch.bfloat16}


def test_adapters_run_one_after_the_other_where_layers_do_not_see_rows(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    families.save(families.module("opt", MODE, word_embed_proj_dim=32), base)
    named = {
        name: str(tiny_adapters.write(tmp_path / name, base, seed=seed))
        for seed, name in enumerate(("a", "b"))
    }
    model = Served(base, MODE, adapters=named)
    assert not model.engine.model.capabilities.mixes_adapters
    bodies = [body("w7 w8 w9", name, min_new_tokens=9) for name in (None, "a", "b", "a")]
    alone = [model.post(each)[0] for each in bodies]
    assert model.post(*bodies) == alone
    assert len({str(each) for each in alone}) == 3


def test_layers_on_disk_are_refused(base: Path, adapters: dict[str, Path]) -> None:
    """Adapters of them would have no weights."""
    config = AutoConfig.from_pretrained(base)
    parts = {"gpt2": GPT2_PARTS, "llama": LLAMA_PARTS}[config.model_type]
    device_map = {**dict.fromkeys(parts, "cpu"), parts[-1]: "disk"}
    with refused(WrongConfig, "handler.adapters", "handler.device_map"):
        Served(base, MODE, adapters={"a": str(adapters["french"])}, device_map=device_map)


@pytest.fixture
def broken(adapters: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of an adapter, to be changed."""
    return shutil.copytree(adapters["french"], tmp_path / "broken")


def load(base: Path, adapter: Path) -> Any:
    return Served(base, MODE, adapters={"broken": str(adapter)})


def test_an_adapter_of_another_architecture_is_refused(base: Path, broken: Path) -> None:
    weights = load_file(broken / "adapter_model.safetensors")
    renamed = {
        name.replace("base_model.model.", "base_model.model.x."): weights[name] for name in weights
    }
    save_file(renamed, broken / "adapter_model.safetensors")
    with refused(WrongCheckpoint):
        load(base, broken)


def test_an_adapter_of_another_size_is_refused(base: Path, broken: Path) -> None:
    weights = load_file(broken / "adapter_model.safetensors")
    name = next(name for name in weights if "lora_A" in name)
    weights[name] = torch.cat([weights[name]] * 2, dim=1)
    save_file(weights, broken / "adapter_model.safetensors")
    with refused(WrongCheckpoint):
        load(base, broken)


def test_a_rank_that_the_weights_do_not_have_is_refused(base: Path, broken: Path) -> None:
    settings = json.loads((broken / "adapter_config.json").read_text())
    (broken / "adapter_config.json").write_text(json.dumps({**settings, "r": 3}))
    with refused(WrongCheckpoint):
        load(base, broken)


@pytest.mark.nightly
def test_a_plain_checkpoint_loads_without_peft(checkpoint: Callable[..., Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.serving import Served;"
        f" Served(Path({str(checkpoint(MODE))!r}), {MODE!r}); print('peft' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"


def test_an_adapter_of_the_directory_writes_the_text_that_it_writes_packed(
    model: Served, base: Path, adapters: dict[str, Path]
) -> None:
    directory = str(adapters["french"].parent)
    found = Served(base, MODE, adapters_directory=directory)
    assert sorted(found.engine.describe().adapters) == sorted(NAMES)
    bodies = [body(prompt, name) for name in CHOICES for prompt in PROMPTS]
    assert found.post(*bodies) == model.post(*bodies)
