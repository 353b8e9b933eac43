"""Options of the benchmarks are checked before the first measurement."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import bench, embeddings, generation, images


@pytest.mark.parametrize(
    ("main", "options", "message"),
    [
        (bench.main, "--only kit,unknown", "There is no contender 'unknown'; there are kit, kit_"),
        (bench.main, "--modes poetry", "'poetry' is not a benchmarked mode"),
        (bench.main, "--clients many", "clients is 'many'; use numbers"),
        (embeddings.main, "--only kit,unknown", "'unknown' is not a contender; choose from kit, k"),
        (embeddings.main, "--model gpt5", "'gpt5' is not a model; choose from minilm, bert_base."),
        (generation.main, "--only kit,unknown", "'unknown' is not a contender; choose from kit, k"),
        (generation.main, "--model gpt5", "'gpt5' is not a model; choose from distilgpt2, qwen2."),
        (images.main, "--only kit,unknown", "'unknown' is not a contender; choose from kit,"),
    ],
)
def test_invalid_options_are_reported_before_the_first_measurement(
    main: Callable[..., None], options: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, options.split())
    assert result.exit_code != 0
    assert message in " ".join(result.output.replace("│", " ").split())
