from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from hf_serve.handlers.compat.peft import activate_adapters, choose_adapters_of_rows, lora_layers


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    from peft import LoraConfig, inject_adapter_in_model  # noqa: PLC0415

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    config = LoraConfig(r=2, target_modules=["0"], init_lora_weights=False)
    for name in ("first", "second"):
        inject_adapter_in_model(config, model, name)
    return model.eval()


def test_each_row_has_its_adapter(model: torch.nn.Module) -> None:
    (layer,) = lora_layers(model)
    chosen: list[Any] = [None]
    choose_adapters_of_rows(layer, lambda: chosen[0])
    row, alone = torch.ones(1, 4), {}
    with torch.inference_mode():
        for name in (None, "first", "second"):
            activate_adapters(layer, [name] if name else [])
            alone[name] = model(row)
        activate_adapters(layer, [])
        chosen[0] = ["second", None, "first"]
        together = model(row.expand(3, 4))
        chosen[0] = None
        without = model(row)
    expected = torch.cat([alone["second"], alone[None], alone["first"]])
    assert torch.allclose(together, expected, atol=1e-6)
    assert not torch.allclose(alone["first"], alone["second"])
    assert torch.equal(without, alone[None])


def test_adapters_that_are_activated_stay_frozen(model: torch.nn.Module) -> None:
    (layer,) = lora_layers(model)
    activate_adapters(layer, ["first"])
    assert not any(parameter.requires_grad for parameter in layer.lora_A.parameters())


@pytest.mark.nightly
def test_peft_is_imported_without_bitsandbytes() -> None:
    program = (
        "import sys; from hf_serve.handlers.compat.imports import without_bitsandbytes\n"
        "with without_bitsandbytes():\n"
        "    import peft; from peft.tuners.lora import LoraLayer\n"
        "print('bitsandbytes' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "False"
