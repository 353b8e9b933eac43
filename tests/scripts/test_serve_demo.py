from __future__ import annotations

from typing import Any

import pytest
import typer

from hf_serve.scripts import create_archive, make_demo_models, serve, serve_demo
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.paths import config_path_of


@pytest.mark.parametrize("named", [None, ["fill_mask", "summarization"]])
def test_what_is_served_is_made_and_packed_before(
    monkeypatch: pytest.MonkeyPatch, named: list[str] | None
) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(make_demo_models, "main", steps.append)
    monkeypatch.setattr(create_archive, "main", steps.append)
    monkeypatch.setattr(serve, "start", lambda **options: steps.append(options))
    serve_demo.main(named, url_port=8000)
    modes = named or default_modes()
    assert steps == [modes, list(map(config_path_of, modes)), {"models": modes, "url_port": 8000}]


def test_nothing_is_served_where_an_archive_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise typer.Exit(1)

    started: list[Any] = []
    monkeypatch.setattr(make_demo_models, "main", lambda _: None)
    monkeypatch.setattr(create_archive, "main", fail)
    monkeypatch.setattr(serve, "start", started.append)
    with pytest.raises(typer.Exit):
        serve_demo.main()
    assert not started
