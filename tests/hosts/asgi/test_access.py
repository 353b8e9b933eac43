"""Requests have one of the keys, and pages of the origins read responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import WrongConfig
from hf_serve.hosts.asgi.access import read_keys
from tests.hosts.asgi.stand_in import Recorder, ask
from tests.sentences import refused

KEYS = ("first", "zweiter-schlüssel")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first"},
        {"Authorization": "bearer first"},
        {"X-Api-Key": "first"},
        {"X-Api-Key": "first", "Authorization": "Bearer wrong"},
    ],
)
def test_a_request_with_a_key_is_answered_and_the_model_does_not_see_it(headers: Any) -> None:
    backend = Recorder()
    answer = ask(backend, "POST", "/predictions/gpt", keys=KEYS, headers=headers)
    assert answer.status_code == 200
    names = {name for name, _ in backend.requests[0].headers}
    assert not names & {b"authorization", b"x-api-key"}


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer "}, {"Authorization": "first"}, {"X-Api-Key": "firs"}]
)
def test_a_request_without_a_key_is_refused_in_the_shape_of_the_api(headers: Any) -> None:
    backend = Recorder()
    answer = ask(backend, "POST", "/v1/embeddings", keys=KEYS, headers=headers)
    assert (answer.status_code, backend.requests) == (401, [])
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_key_and_lists_need_one() -> None:
    assert ask(Recorder(), "GET", "/v2/health/live", keys=KEYS).status_code == 200
    assert ask(Recorder(), "GET", "/v1/models", keys=KEYS).status_code == 401


def test_without_keys_the_authorization_is_passed_on() -> None:
    backend = Recorder()
    ask(backend, "POST", "/predictions/gpt", headers={"Authorization": "Bearer token"})
    assert (b"authorization", b"Bearer token") in backend.requests[0].headers


def test_keys_are_read_from_a_file_and_a_value(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the team\nfirst\n\n second \n")
    keys = read_keys(file, "third, fourth")
    for key in ("first", "second", "third", "fourth"):
        answer = ask(Recorder(), "GET", "/models", headers={"X-Api-Key": key}, keys=())
        assert answer.status_code == 200
        keys.check(answer.request.headers)
    file.write_text("# none\n")
    with refused(WrongConfig, "has no key"):
        read_keys(file)
    with refused(WrongConfig, "cannot be read"):
        read_keys(tmp_path / "nothing")


def test_pages_of_an_origin_may_read_responses_where_it_is_allowed() -> None:
    page = {"Origin": "https://page.example"}
    asks = {**page, "Access-Control-Request-Method": "POST"}
    closed = ask(Recorder(), "GET", "/models", headers=page)
    assert "access-control-allow-origin" not in closed.headers
    options: Any = {"origins": ["https://page.example"], "keys": KEYS}
    preflight = ask(Recorder(), "OPTIONS", "/v1/embeddings", headers=asks, **options)
    assert preflight.status_code == 200
    refusal = ask(Recorder(), "GET", "/models", headers=page, **options)
    assert refusal.status_code == 401
    assert refusal.headers["access-control-allow-origin"] == "https://page.example"
