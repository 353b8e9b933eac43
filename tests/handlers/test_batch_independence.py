"""No output depends on the rows that share a batch, in any family of transformers."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from hf_serve.handlers import formats
from hf_serve.handlers.batching.padding import Padding, pad
from hf_serve.handlers.batching.rows import Row, require_outputs
from hf_serve.handlers.batching.sequence_packing import TILE
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.generation.generator import Prompt
from hf_serve.handlers.generation.parameters import GenerationParameters
from hf_serve.handlers.telemetry.metrics import Meter
from tests import families
from tests.families import CLASSIFIERS

LENGTHS = (5, 300, 17, 140, 64, 33, 17)
GENERATORS = {
    "bamba": (math.inf, False),
    "falcon_mamba": (math.inf, False),
    "gemma2": (math.inf, False),
    "gpt2": (math.inf, False),
    "jamba": (math.inf, False),
    "llama": (math.inf, False),
    "mamba": (math.inf, False),
    "mamba2": (math.inf, False),
    "qwen2": (math.inf, False),
    # Recurrent layers, which the attention mask does not reach.
    "recurrent_gemma": (0, False),
    # In transformers 5.5, the state of one row reaches the others of its batch.
    "rwkv": (0, True),
}
PACKED = [
    *("albert", "bert", "camembert", "data2vec-text", "distilbert", "electra", "ernie"),
    *("eurobert", "ibert", "jina_embeddings_v3", "luke", "megatron-bert", "modernbert", "mpnet"),
    *("nomic_bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "squeezebert"),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
]
# A family of each kind; the others are marked `nightly`.
QUICK = ("bert", "distilbert", "modernbert", "deberta-v2", "fnet", "convbert", "gpt2")
EQUAL_LENGTH = ["canine", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "yoso"]


def cases() -> list[Any]:
    """Return the families with the modes that they have a head for."""
    return [
        pytest.param(family, mode, marks=[] if family in QUICK else [pytest.mark.nightly])
        for family in CLASSIFIERS
        for mode in families.modes(family)
    ]


@pytest.mark.parametrize(("family", "mode"), cases())
def test_a_text_has_the_outputs_in_a_batch_that_it_has_alone(family: str, mode: str) -> None:
    module = families.module(family, mode)
    expected = [of_module(module, row) for row in texts(LENGTHS)]
    engine = families.engine(module, mode)
    assert_alike(outputs(engine, texts(LENGTHS)), expected)


def test_big_bird_reads_long_texts_with_sparse_attention_after_short_ones() -> None:
    mode = "token_classification"
    sizes = {"block_size": 4, "num_random_blocks": 1}
    # A short text changes a module of transformers to full attention.
    rows = texts([7, *LENGTHS])
    expected = [of_module(families.module("big_bird", mode, **sizes), row) for row in rows]
    engine = families.engine(families.module("big_bird", mode, **sizes), mode)
    assert engine.model.padded_limit == (5 + 2) * 4
    assert_alike(outputs(engine, rows), expected)


@pytest.mark.parametrize("family", PACKED)
def test_encoders_are_packed(family: str) -> None:
    engine = families.engine(
        families.module(family, "token_classification"), "token_classification"
    )
    assert engine.model.capabilities.supports_packing


@pytest.mark.parametrize("family", EQUAL_LENGTH)
def test_encoders_that_padding_changes_run_texts_of_equal_length(family: str, caplog: Any) -> None:
    with caplog.at_level(logging.INFO):
        engine = families.engine(
            families.module(family, "token_classification"), "token_classification"
        )
    assert (engine.model.padded_limit, engine.model.runs_alone) == (0, False)
    assert caplog.text.count("it runs rows of equal length") == 1


@pytest.mark.parametrize("family", ["funnel", "yoso"])
def test_padding_that_changes_a_score_less_than_bfloat16_rounds_is_known(family: str) -> None:
    mode = "sequence_classification"
    module = families.module(family, mode).bfloat16()
    engine = families.engine(module, mode, dtype="bfloat16")
    assert engine.model.padded_limit == 0


@pytest.mark.parametrize(("side", "limit"), [("right", math.inf), ("left", 0)])
def test_positions_that_padding_would_move_are_not_padded(
    side: str, limit: float, monkeypatch: Any
) -> None:
    mode = "token_classification"
    module = families.module("bert", mode)
    expected = [of_module(module, row) for row in texts(LENGTHS)]
    monkeypatch.setattr(families.tokenizer(), "padding_side", side)
    engine = families.engine(module, mode, BetterTransformer=False)
    assert engine.model.padded_limit == limit
    assert_alike(outputs(engine, texts(LENGTHS)), expected)


def exports() -> list[Any]:
    """Return formats and families. CANINE, Funnel and YOSO cannot be exported."""
    few = [("torch_export", "bert"), ("torchscript", "modernbert"), ("torchscript", "fnet")]
    scripts = (
        *PACKED,
        "big_bird",
        "convbert",
        "deberta-v2",
        "mobilebert",
        "mpnet",
        "nystromformer",
        "xlnet",
    )
    others = [("torchscript", name) for name in scripts]
    others += [
        ("torch_export", name) for name in ("modernbert", "eurobert", "gpt2", "llama", "fnet")
    ]
    slow = [pytest.param(*case, marks=pytest.mark.nightly) for case in others if case not in few]
    return [*few, *slow]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("packs", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("save_mode", "family"), exports())
def test_an_exported_model_has_the_outputs_of_its_checkpoint(
    save_mode: str, family: str, packs: bool, tmp_path: Path
) -> None:
    mode = "token_classification"
    module = families.module(family, mode)
    families.save(module, tmp_path / "checkpoint")
    handler = {"mode": mode, "dtype": "float32", "save_mode": save_mode}
    config = ModelConfig.parse({"handler": {**handler, "BetterTransformer": packs}})
    formats.export(tmp_path / "checkpoint", config, tmp_path / "checkpoint")
    engine = Engine.load(tmp_path / "checkpoint", config)
    expected = [of_module(module, row) for row in texts(LENGTHS)]
    assert_alike(outputs(engine, texts(LENGTHS)), expected)


@pytest.mark.parametrize("window", [32, 128])
def test_a_text_in_a_row_wider_than_its_window_keeps_its_labels(window: int) -> None:
    mode = "token_classification"
    module = families.module("modernbert", mode, local_attention=window)
    rows = texts([window - TILE, window + TILE, 3 * window, 7])
    expected = [of_module(module, row) for row in rows]
    engine = families.engine(module, mode)
    assert engine.model.capabilities.supports_packing
    assert_alike(outputs(engine, rows), expected)


@pytest.mark.parametrize(("family", "policy"), GENERATORS.items())
def test_a_prompt_has_the_continuation_in_a_batch_that_it_has_alone(
    family: str, policy: tuple[float, bool]
) -> None:
    engine = families.engine(families.module(family, "text_generation"), "text_generation")
    assert (engine.model.padded_limit, engine.model.runs_alone) == policy
    prompts = [prompt(row) for row in texts((5, 60, 17, 140, 17, 33))]
    alone = [continuations(engine, [each])[0] for each in prompts]
    assert continuations(engine, prompts) == alone
    assert len({tuple(each) for each in alone}) > 2


@pytest.mark.parametrize("named", [None, -1, 7])
@pytest.mark.parametrize("mode", families.CLASSIFIER_MODES)
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2"])
def test_a_decoder_classifies_texts_that_end_with_any_id(
    family: str, mode: str, named: int | None
) -> None:
    """The tokenizer pads with 1, the config names another padding token or none."""
    module = families.module(family, mode, pad_token_id=named)
    rows = [*texts((5, 40, 17)), Row({"input_ids": [9, 30, 31, 1]}), Row({"input_ids": [9, 1, 1]})]
    expected = [of_module(module, row) for row in rows]
    engine = families.engine(module, mode)
    assert engine.model.padded_limit == math.inf
    assert_alike(outputs(engine, rows), expected)
    assert_alike(outputs(engine, rows[3:]), expected[3:])


def test_a_window_that_no_trial_reaches_limits_padding() -> None:
    """Within half of it, a window changes nothing."""
    mode = "token_classification"
    module = families.module("mistral", mode, sliding_window=4096, max_position_embeddings=32768)
    assert families.engine(module, mode).model.padded_limit == 2048
    module = families.module("mistral", mode, sliding_window=4096, max_position_embeddings=4096)
    assert families.engine(module, mode).model.padded_limit == math.inf


def texts(lengths: Sequence[int]) -> list[Row]:
    """Return texts of random tokens with a start and an end token."""
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randint(10, 100, (length - 2,), generator=generator) for length in lengths]
    return [Row({"input_ids": [0, *each.tolist(), 2]}) for each in drawn]


def prompt(row: Row) -> Prompt:
    return Prompt(row.features, None, GenerationParameters(), 8)


def of_module(module: PreTrainedModel, row: Row) -> Any:
    """Return the logits that transformers itself computes for one text."""
    with torch.inference_mode():
        return module(**pad([row], Padding({}))).logits[0].numpy()


def outputs(engine: Engine, rows: Sequence[Row]) -> list[Any]:
    outcomes = engine.task.run(engine.model, rows, Meter())
    return [output["logits"] for output in require_outputs(outcomes)]


def continuations(engine: Engine, prompts: Sequence[Prompt]) -> list[list[int]]:
    outcomes = engine.task.run(engine.model, prompts, Meter())
    return [output["sequences"][0].tolist() for output in require_outputs(outcomes)]


def assert_alike(found: Sequence[Any], expected: Sequence[Any]) -> None:
    largest = max(float(np.abs(each).max()) for each in expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * largest)
