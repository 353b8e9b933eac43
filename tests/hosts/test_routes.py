"""TorchServe's routes: what a path names, and the headers that the handler gets."""

from __future__ import annotations

import pytest

from hf_serve.hosts.routes import Route, UnknownRoute, find_route, query_fields
from tests.sentences import Sentence


def route(model: str, version: str = "", path: str = "", *, explains: bool = False) -> Route:
    return Route(model, version, {"url_path": path, "explain": str(explains)})


def bare(model: str, version: str = "", *, explains: bool = False) -> Route:
    """A route without a path: a client may set the header."""
    return Route(model, version, {"explain": str(explains)})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/predictions/fox", route("fox")),
        ("/predictions/fox/", route("fox")),
        ("/predictions/fox/1.0", route("fox", "1.0")),
        ("/predictions/fox/1.0/v1/chat/completions", route("fox", "1.0", "v1/chat/completions")),
        ("/explanations/fox", route("fox", explains=True)),
        ("/explanations/fox/1.0/a", route("fox", "1.0", "a", explains=True)),
        ("/v1/models/fox:predict", bare("fox")),
        ("/v1/models/fox:explain", bare("fox", explains=True)),
        ("/v2/models/fox/infer", bare("fox")),
        ("/v2/models/fox/explain", bare("fox", explains=True)),
        ("/v2/models/fox/versions/1.0/infer", bare("fox", "1.0")),
        ("/models/fox/invoke", bare("fox")),
        ("/invocations", Route("fox", "", {"url_path": ""})),
    ],
)
def test_a_path_names_a_model(path: str, expected: Route) -> None:
    assert find_route(path, {"model_name": "fox"}) == expected


def test_a_path_without_a_version_is_in_the_query() -> None:
    query = {"path": "/v1/chat/completions", "model_name": "fox"}
    headers = {"url_path": "/v1/chat/completions"}
    invoked = find_route("/models/fox/invoke", query)
    assert invoked == Route("fox", "", {**headers, "explain": "False"})
    assert find_route("/invocations", query) == Route("fox", "", headers)
    assert find_route("/predictions/fox", query) == route("fox")


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("/invocations?model_name=fox&top_k=1&model=a", {"model_name": "fox", "top_k": "1"}),
        ("/models/fox/invoke?path=v1%2Fembeddings&k=", {"path": "v1/embeddings", "k": ""}),
        ("/invocations", {}),
        ("/predictions/fox?top_k=1", {}),
        ("/v1/chat/completions?top_k=1", {}),
    ],
)
def test_the_handler_gets_the_query_of_torchserves_routes(
    address: str, fields: dict[str, str]
) -> None:
    assert query_fields(address) == fields


@pytest.mark.parametrize("path", ["/", "/predictions", "/predictions/", "/v1/models/fox:tune"])
def test_another_path_has_torchserves_error(path: str) -> None:
    with pytest.raises(UnknownRoute) as refused:
        find_route(path, {})
    assert refused.value.body() == {
        "code": 404,
        "type": "ResourceNotFoundException",
        "message": Sentence(),
    }
