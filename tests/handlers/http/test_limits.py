"""The limits of bodies, which are those of the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_serve.handlers.compat.torchserve import FRONTEND
from hf_serve.handlers.http.limits import DEFAULTS, BodyLimits, server_limits

SET = BodyLimits(max_request_bytes=1000, max_response_bytes=2000)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("max_request_size=1000\nmax_response_size=2000\n", SET),
        ("# a\n max_request_size : 1000 \r\nmax_response_size = 2000", SET),
        ("max_request_size=9\nmax_request_size=1000\nmax_response_size=2000", SET),
        ("#max_request_size=1000\nmodel_store=max_request_size=1000\n", DEFAULTS),
        ("max_request_size=many\nmax_response_size=\n", DEFAULTS),
        ("enable_envvars_config=true\nmax_request_size=1000\nmax_response_size=9", SET),
        ("", DEFAULTS),
    ],
)
def test_a_config_file_sets_them(text: str, limits: BodyLimits) -> None:
    assert BodyLimits.from_properties(text, {"TS_MAX_RESPONSE_SIZE": "2000"}) == limits


@pytest.mark.parametrize(
    ("file", "arguments", "variable"),
    [
        ("config.properties", [], None),
        ("my.properties", ["-f", "my.properties"], None),
        ("my.properties", ["-f", "my.properties"], ""),
        ("my.properties", ["-f", "other.properties"], "my.properties"),
        ("my.properties", [], "my.properties"),
    ],
)
def test_they_are_those_of_the_server_that_started_the_worker(
    tmp_path: Path, file: str, arguments: list[str], variable: str | None
) -> None:
    for name in ("config.properties", "other.properties"):
        (tmp_path / name).write_text("max_request_size=3\n", encoding="utf-8")
    settings = "max_request_size=1000\nmax_response_size=2000\n"
    (tmp_path / file).write_text(settings, encoding="utf-8")
    worker = "from hf_serve.handlers.http.limits import server_limits; print(server_limits())"
    server = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}], check=True)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TS_CONFIG_FILE"}
    if variable is not None:
        environment["TS_CONFIG_FILE"] = variable
    found = subprocess.run(
        [sys.executable, "-c", server, FRONTEND, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(SET)


def test_without_a_server_they_are_the_defaults_of_torchserve() -> None:
    assert server_limits() == DEFAULTS == BodyLimits(6_553_500, 6_553_500, 100_000)


@pytest.mark.parametrize(("rows", "values"), [(1, 100_000), (128, 128_000), (5000, 5_000_000)])
def test_a_model_that_takes_more_items_takes_more_values(rows: int, values: int) -> None:
    assert DEFAULTS.for_rows(rows).max_values == values
