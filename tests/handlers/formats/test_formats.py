"""What every format in `handlers/formats/` promises."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from handlers import formats
from handlers.config.choices import modes
from handlers.errors import ConfigError
from scripts.kit.archive_formats import ARCHIVE_FORMATS
from tests.samples import format_params, keys_of, requests_of
from tests.serving import Served, differences

GENERATED = "text_generation"
BARE_ANSWERS = Path(__file__).parents[2] / "bare_answers.py"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
every_format = pytest.mark.parametrize("save_mode", format_params())


@pytest.fixture(scope="module")
def laid_down(packed: Callable[..., Path], tmp_path_factory: Any) -> Callable[..., Path]:
    """The unpacked archive of a tiny model in a format."""

    @cache
    def unpack(save_mode: str, mode: str, family: str = "Bert") -> Path:
        archive = packed(save_mode, mode, family)
        return ARCHIVE_FORMATS["mar"].unpack(archive, tmp_path_factory.mktemp(save_mode))

    return unpack


@every_format
@pytest.mark.parametrize(
    ("mode", "family"),
    [
        *((mode, "Bert") for mode in modes() if mode != GENERATED),
        ("sequence_classification", "Roberta"),
    ],
)
def test_answers_do_not_depend_on_the_format(
    laid_down: Any, served: Any, save_mode: str, mode: str, family: str
) -> None:
    model = Served(laid_down(save_mode, mode, family), mode, **keys_of(save_mode))
    for inputs, given in requests_of(mode):
        expected = served(mode, family=family).ask(inputs, **given)
        assert not differences(model.ask(inputs, **given), expected, 1e-4)


@every_format
def test_an_encoder_takes_packed_rows_where_shapes_are_free(laid_down: Any, save_mode: str) -> None:
    folder = laid_down(save_mode, "sequence_classification")
    model = Served(folder, "sequence_classification", **keys_of(save_mode)).engine.model
    assert model.packs == (save_mode not in ("neuron", "neuronx"))


@every_format
def test_a_format_generates_or_refuses_to_before_it_is_asked(
    laid_down: Any, served: Any, save_mode: str
) -> None:
    if formats.get(save_mode).generates:
        model = Served(laid_down(save_mode, GENERATED), GENERATED, **keys_of(save_mode))
        assert model.ask("Ada") == served(GENERATED).ask("Ada")
        return
    with pytest.raises(ConfigError, match="text_generation"):
        laid_down(save_mode, GENERATED)


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


# AWS's packages are stood in for, and a bare interpreter knows no stand-ins.
BARE = [each for each in format_params() if each not in ("neuron", "neuronx")]


@pytest.mark.parametrize("save_mode", BARE)
def test_an_archive_answers_alike_in_a_bare_interpreter(
    laid_down: Any, served: Any, save_mode: str
) -> None:
    able = [mode for mode in modes() if mode != GENERATED or formats.get(save_mode).generates]
    asked = [(str(laid_down(save_mode, mode)), requests_of(mode)) for mode in able]
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(BARE_ANSWERS)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=laid_down(save_mode, able[0]),
    )
    for mode, (_, requests), answers in zip(able, asked, json.loads(done.stdout), strict=True):
        expected = [served(mode).ask(inputs, **given) for inputs, given in requests]
        assert not differences(answers, json.loads(json.dumps(expected)), 1e-4)
