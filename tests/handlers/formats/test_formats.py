"""What every format in `handlers/formats/` promises."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from handlers.config import ModelConfig
from handlers.errors import ConfigError
from handlers.exports import export, is_exported
from handlers.registry import format_module
from handlers.words import modes
from tests.samples import format_params, keys_of, requests_of
from tests.serving import Served, differences

GENERATED = "text_generation"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
every_format = pytest.mark.parametrize("save_mode", format_params())


@pytest.fixture(scope="module")
def laid_down(checkpoint: Callable[..., Path], tmp_path_factory: Any) -> Callable[..., Path]:
    """A folder with a tiny model in a format, as it is packed."""

    @cache
    def lay(save_mode: str, mode: str, family: str = "Bert") -> Path:
        folder: Path = tmp_path_factory.mktemp(save_mode) / "model"
        shutil.copytree(checkpoint(mode, family=family), folder)
        config = ModelConfig.parse({"handler": {"mode": mode, **keys_of(save_mode)}})
        if is_exported(config):
            export(folder, config, folder)
            (folder / "model.safetensors").unlink()
        return folder

    return lay


@every_format
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
@pytest.mark.parametrize("mode", [mode for mode in modes() if mode != GENERATED])
def test_answers_do_not_depend_on_the_format(
    laid_down: Any, served: Any, save_mode: str, mode: str, family: str
) -> None:
    model = Served(laid_down(save_mode, mode, family), mode, **keys_of(save_mode))
    for inputs, given in requests_of(mode):
        expected = served(mode, family=family).ask(inputs, **given)
        assert not differences(model.ask(inputs, **given), expected, 1e-4)


@every_format
def test_a_format_generates_or_refuses_to_before_it_is_asked(
    laid_down: Any, served: Any, save_mode: str
) -> None:
    if format_module(save_mode).GENERATES:
        model = Served(laid_down(save_mode, GENERATED), GENERATED, **keys_of(save_mode))
        assert model.ask("Ada") == served(GENERATED).ask("Ada")
        return
    with pytest.raises(ConfigError, match="text_generation"):
        Served(laid_down(save_mode, GENERATED), GENERATED, **keys_of(save_mode))


@every_format
def test_without_its_weights_a_format_stops_the_load(
    laid_down: Any, tmp_path: Path, save_mode: str
) -> None:
    folder = laid_down(save_mode, "sequence_classification")
    for path in (*folder.glob("*.json"), *folder.glob("*.txt")):
        shutil.copy(path, tmp_path)
    with pytest.raises(ConfigError) as caught:
        Served(tmp_path, "sequence_classification", **keys_of(save_mode))
    assert "\n" not in str(caught.value)
