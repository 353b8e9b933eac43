from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
)
from transformers.utils.quantization_config import QuantizationMethod

from hf_serve.handlers.checkpoints import dtypes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import ConfigError
from hf_serve.handlers.formats import export
from hf_serve.handlers.types.request import Request
from tests import families
from tests.samples import INPUTS
from tests.sentences import refused
from tests.serving import Served

CLASSES = {
    "sequence_classification": AutoModelForSequenceClassification,
    "text_generation": AutoModelForCausalLM,
}

# Kernels of processors with bfloat16 take weights of 4 bits in blocks of 64 columns.
SHAPES = {"sequence_classification": {}, "text_generation": {"n_embd": 64}}

OPENVINO = pytest.param("openvino", marks=pytest.mark.openvino)
Quantize = Callable[..., Path]


@pytest.fixture
def quantize(checkpoint: Callable[..., Path], tmp_path: Path) -> Quantize:
    """Write a tiny quantized checkpoint as they are published, with the method in config.json."""

    def write(mode: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Path:
        source = checkpoint(mode, **SHAPES[mode])
        model = CLASSES[mode].from_pretrained(
            source, dtype=dtype, quantization_config=BitsAndBytesConfig(**settings)
        )
        model.save_pretrained(tmp_path)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(source / name, tmp_path)
        return tmp_path

    return write


def weight_types(served: Served) -> set[str]:
    model: Any = served.engine.model
    return {type(each).__name__ for each in model.module.parameters()}


def test_eight_bit_weights_answer_as_in_transformers(quantize: Quantize) -> None:
    mode = "sequence_classification"
    folder = quantize(mode, load_in_8bit=True)
    quantized = Served(folder, mode, dtype="auto")
    assert "Int8Params" in weight_types(quantized)
    model = CLASSES[mode].from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in INPUTS[mode][:3]:
        with torch.no_grad():
            scores = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        (answer,) = quantized.ask(text)
        assert answer["label"] == model.config.id2label[int(scores.argmax())]
        assert answer["score"] == pytest.approx(float(scores.max()), abs=1e-3)


def test_four_bit_weights_generate_in_their_compute_dtype(quantize: Quantize) -> None:
    mode = "text_generation"
    folder = quantize(mode, torch.bfloat16, load_in_4bit=True)
    quantized = Served(folder, mode, dtype="auto")
    model: Any = quantized.engine.model
    assert "Params4bit" in weight_types(quantized)
    assert model.module.dtype == torch.bfloat16
    (answer,) = quantized.ask("Once upon a time", max_new_tokens=5)
    assert len(answer["generated_text"]) > len("Once upon a time")


def test_another_dtype_is_refused(quantize: Quantize) -> None:
    folder = quantize("sequence_classification", torch.bfloat16, load_in_4bit=True)
    with refused(ConfigError, "handler.dtype", "float32", "bfloat16"):
        Served(folder, "sequence_classification", dtype="float32")


@pytest.mark.parametrize("save_mode", ["torchscript", "onnx", OPENVINO])
@pytest.mark.parametrize("named", [{}, {"dtype": "auto"}])
def test_an_export_is_refused_with_the_key_of_the_yaml(
    quantize: Quantize, tmp_path: Path, save_mode: str, named: dict[str, str]
) -> None:
    mode = "sequence_classification"
    folder = quantize(mode, torch.bfloat16, load_in_4bit=True)
    config = ModelConfig.parse({"handler": {"mode": mode, "save_mode": save_mode, **named}})
    facts = "handler.save_mode", save_mode, "bitsandbytes", "save_mode: pretrained"
    with refused(ConfigError, *facts):
        export(folder, config, tmp_path / "target", [Request("fine")])


def test_no_method_is_taken_for_a_package() -> None:
    # These need no package.
    known = {method.value for method in QuantizationMethod} - {"bitnet", "gemma"}
    assert known <= {*dtypes.PACKAGES}, "name what pip installs for each of them"
    assert "pip install kernels triton in" in str(dtypes.missing_package("fp8", ImportError()))
    message = str(dtypes.missing_package("bitnet", ImportError("needs `x`")))
    assert "pip install" not in message and "install the package that this names" in message


@pytest.mark.parametrize(
    ("method", "install"),
    [("gptq", "gptqmodel optimum"), ("quanto", "optimum-quanto"), ("aqlm", "'aqlm[gpu,cpu]'")],
)
def test_a_missing_package_is_named(
    checkpoint: Callable[..., Path], tmp_path: Path, method: str, install: str
) -> None:
    folder = shutil.copytree(checkpoint("text_generation"), tmp_path / "quantized")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": method, "bits": 4, "weights": "int8"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Served(folder, "text_generation", dtype="auto")
    message = str(caught.value)
    assert message.startswith(
        f"config.json: says that the weights were quantized with {method}, and "
    )
    assert message.endswith(f"; pip install {install} in the environment of the worker.")


@pytest.fixture
def with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor has bfloat16."""
    monkeypatch.setattr(dtypes, "cpu_has_bfloat16", lambda: True)


def saved(family: str, folder: Path) -> tuple[Path, str]:
    """Return a checkpoint of a family, and its mode."""
    mode = families.modes(family)[0]
    families.save(families.module(family, mode), folder)
    return folder, mode


@pytest.mark.usefixtures("with_bfloat16")
@pytest.mark.parametrize("family", sorted(dtypes.FLOAT32_ONLY))
def test_layers_of_float32_alone_are_packed_and_served_in_it(tmp_path: Path, family: str) -> None:
    folder, mode = saved(family, tmp_path / "checkpoint")
    Served(folder, mode, dtype="auto").ask("w7 w23 w41")
    config = ModelConfig.parse({"handler": {"mode": mode, "dtype": "auto"}})
    export(folder, config, tmp_path / "target", [Request("w7 w23 w41")])
    with refused(ConfigError, "handler.dtype", "bfloat16", family, "float32"):
        Served(folder, mode, dtype="bfloat16")


@pytest.mark.nightly
@pytest.mark.usefixtures("with_bfloat16")
@pytest.mark.parametrize("family", families.CLASSIFIERS)
def test_each_family_answers_on_a_processor_with_bfloat16(tmp_path: Path, family: str) -> None:
    Served(*saved(family, tmp_path), dtype="auto").ask("w7 w23 w41")
