"""`/openapi.json` and `/docs`: the addresses of the application and its models, without a script
or a style from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from hf_serve.handlers import __version__
from hf_serve.hosts.asgi.addresses import ADDRESSES, Address, Api
from hf_serve.hosts.asgi.backend import ModelEntry

OPENAPI = "3.1.1"
# Addresses that are no request to a model without its name.
OTHERS: tuple[tuple[str, str, Api, str], ...] = (
    ("GET", "/v1/models", Api.OPENAI, "All models with their state and last error."),
    ("GET", "/v1/models/{model}", Api.OPENAI, "A model, and whether it is ready."),
    ("GET", "/v1/responses/{response_id}", Api.OPENAI, "A stored response."),
    ("DELETE", "/v1/responses/{response_id}", Api.OPENAI, "Delete a stored response."),
    (
        "GET",
        "/v1/responses/{response_id}/input_items",
        Api.OPENAI,
        "The items that a stored response answers.",
    ),
    ("POST", "/v1/models/{model}:predict", Api.TORCHSERVE, "KServe V1."),
    ("POST", "/v1/models/{model}:explain", Api.TORCHSERVE, "KServe V1."),
    ("GET", "/v2/models/{model}", Api.OPEN_INFERENCE, "Inputs and outputs of a model."),
    ("GET", "/v2/models/{model}/ready", Api.OPEN_INFERENCE, "Whether a model is ready."),
    ("POST", "/v2/models/{model}/infer", Api.OPEN_INFERENCE, "Predict tensors."),
    (
        "POST",
        "/v2/models/{model}/versions/{version}/infer",
        Api.OPEN_INFERENCE,
        "Predict tensors by a version.",
    ),
    ("POST", "/predictions/{model}", Api.TORCHSERVE, "Predict, with any protocol."),
    ("POST", "/predictions/{model}/{version}", Api.TORCHSERVE, "Predict by a version."),
    ("POST", "/explanations/{model}", Api.TORCHSERVE, "Explain a prediction."),
    ("GET", "/models", Api.TORCHSERVE, "The names of all models."),
    ("GET", "/models/{model}", Api.TORCHSERVE, "The version and the state of a model."),
    ("GET", "/ping", Api.TORCHSERVE, "Whether every model answers."),
    ("GET", "/health", Api.EMBEDDINGS, "Whether every model answers."),
    ("GET", "/v2/health/live", Api.OPEN_INFERENCE, "Whether the server answers."),
    ("GET", "/v2/health/ready", Api.OPEN_INFERENCE, "Whether every model answers."),
    ("GET", "/metrics", Api.TORCHSERVE, "Metrics in Prometheus' format."),
)

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border-bottom: 1px solid #8886; padding: .3rem .8rem .3rem 0; text-align: left; }
code, pre { font: 14px/1.5 ui-monospace, monospace; }
pre { margin: 0; overflow-x: auto; white-space: pre-wrap; }
"""


def openapi(models: Mapping[str, ModelEntry]) -> dict[str, Any]:
    """Return the OpenAPI document of the addresses, whose model names are those that are served."""
    paths: dict[str, dict[str, Any]] = {}
    for address in ADDRESSES:
        paths.setdefault(address.path, {})[address.method.lower()] = _operation(address, models)
    for method, path, api, summary in OTHERS:
        operation = {"tags": [str(api)], "summary": summary, **_RESPONSES}
        if "{" in path:
            operation["parameters"] = [
                _parameter(name, "path", list(models) if name == "model" else None)
                for name in ("model", "version", "response_id")
                if f"{{{name}}}" in path
            ]
        if method == "POST":
            operation["requestBody"] = _body({})
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": OPENAPI,
        "info": {"title": "Models at one URL", "version": __version__},
        "servers": [{"url": "/"}],
        "paths": paths,
    }


def page(models: Mapping[str, ModelEntry]) -> str:
    """Return the HTML page of the models and addresses."""
    served = "".join(
        f"<tr><td><code>{escape(each.name)}</code><td>{escape(each.version)}"
        f"<td>{escape(each.state)}<td>{escape(each.error)}"
        for each in models.values()
    )
    addresses = "".join(
        f"<tr><td>{escape(address.api)}<td><code>{address.method} {escape(address.path)}</code>"
        f"<td><pre>{escape(_curl(address))}</pre>"
        for address in ADDRESSES
    )
    others = "".join(
        f"<tr><td>{escape(api)}<td><code>{method} {escape(path)}</code><td>{escape(summary)}"
        for method, path, api, summary in OTHERS
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>Models</title>'
        f"<style>{STYLE}</style><h1>Models</h1>"
        f"<table><tr><th>Name<th>Version<th>State<th>Last error{served}</table>"
        "<h2>Addresses</h2><p>A request names its model in the body, as <code>?model=NAME</code>,"
        " or in the header <code>X-Model</code>. It may leave the name out where one model alone"
        ' can answer. <a href="openapi.json">OpenAPI document</a></p>'
        f"<table><tr><th>API<th>Address<th>Example{addresses}</table>"
        "<h2>Addresses with the name of a model, and of the server</h2>"
        f"<table><tr><th>API<th>Address<th>{others}</table></html>"
    )


_RESPONSES: dict[str, Any] = {
    "responses": {
        "200": {"description": "The result."},
        "default": {"description": "An error in the shape of the API."},
    }
}


def _operation(address: Address, models: Mapping[str, ModelEntry]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [str(address.api)],
        "summary": f"{address.api}: {address.path}",
        "parameters": [
            {**_parameter("model", "query", list(models)), "required": False},
            {**_parameter("X-Model", "header", list(models)), "required": False},
        ],
        **_RESPONSES,
    }
    if address.method == "POST":
        operation["requestBody"] = _body(_example(address))
    return operation


def _body(example: Mapping[str, Any]) -> dict[str, Any]:
    is_file = "file" in example
    media = {"schema": {"type": "object"}, **({"example": example} if example else {})}
    kind = "multipart/form-data" if is_file else "application/json"
    return {"required": True, "content": {kind: media}}


def _parameter(name: str, place: str, values: list[str] | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", **({"enum": values} if values else {})}
    return {"name": name, "in": place, "required": True, "schema": schema}


def _example(address: Address) -> dict[str, Any]:
    named = {"model": "NAME"} if address.names_model_in_body else {}
    return {**named, **address.example}


def _curl(address: Address) -> str:
    if address.method == "GET":
        return f"curl HOST{address.path}"
    example = _example(address)
    if "file" in example:
        return f"curl HOST{address.path} " + " ".join(f"-F {k}={v}" for k, v in example.items())
    body = json.dumps(example)
    return f"curl HOST{address.path} -H 'Content-Type: application/json' -d '{body}'"
