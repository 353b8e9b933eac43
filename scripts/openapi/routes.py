"""The operations of the protocols' routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

from handlers import protocols, tasks
from handlers.errors import WholeErrorBody
from handlers.http.response import JSON
from handlers.http.streams import SERVER_SENT_EVENTS, Stream
from handlers.protocols.routes import Route
from handlers.tasks._text import TextTask
from handlers.types.model_info import abilities_of
from scripts.openapi.operation import Body, Operation
from scripts.openapi.schemas import Schemas
from scripts.openapi.shapes import TEXT, Schema, one_of

MODEL = "/predictions/{model}/{version}/"


def routes_of(mode: str) -> list[Route]:
    """Return the routes of the models of a mode, in the order of the protocols."""
    task = tasks.get(mode)
    abilities = abilities_of(task)
    if issubclass(task, TextTask):
        abilities.add("tokenizes")
    return [
        each
        for each in all_routes()
        if not each.abilities or not abilities.isdisjoint(each.abilities)
    ]


def all_routes() -> list[Route]:
    """Return the routes of every protocol."""
    modules = (import_module(f"{protocols.__name__}.{name}") for name in protocols.ORDER)
    return list(chain.from_iterable(module.Protocol.routes for module in modules))


def operations(mode: str, routes: Sequence[Route], schemas: Schemas) -> list[Operation]:
    """Return the operation of each path; protocols that share one are told apart by the body."""
    by_path: dict[str, list[Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, []).append(route)
    sample = tasks.get(mode).sample
    return [_operation(shared, sample, schemas) for shared in by_path.values()]


def _operation(routes: Sequence[Route], sample: Mapping[str, Any], schemas: Schemas) -> Operation:
    first = routes[0]
    errors = [each.error for each in routes]
    if len(set(errors)) > 1:
        errors.append(WholeErrorBody)  # The body is that of neither.
    return Operation(
        f"{MODEL}{first.path}",
        first.name,
        tuple(dict.fromkeys(each.server for each in routes)),
        first.summary,
        _responses(routes, schemas),
        _bodies(routes, sample, schemas),
        " ".join(each.description for each in routes if each.description),
        [schemas.by_type[each] for each in errors],
        {status: text for each in routes for status, text in each.other_statuses.items()},
    )


def _responses(routes: Sequence[Route], schemas: Schemas) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    whole = [schemas.by_type[each.response] for each in routes if each.response is not None]
    if whole:
        found[JSON] = one_of(whole)
    for each in routes:
        for kind, values in each.other_types.items():
            found[kind] = TEXT if values is str else {"contentMediaType": kind}
        if each.stream:
            found[each.stream.content_type] = stream_of(each.stream, schemas.by_type[each.part])
    return found


def stream_of(stream: Stream, part: Schema) -> Schema:
    """Return the schema of a stream, whose parts have one of their own in `x-part`."""
    unit = "Each event's data" if stream is SERVER_SENT_EVENTS else "Each line"
    return {**TEXT, "description": f"{unit} is JSON, as `x-part` describes it.", "x-part": part}


def _bodies(
    routes: Sequence[Route], sample: Mapping[str, Any], schemas: Schemas
) -> dict[str, Body]:
    schema = [schemas.by_type[each.body] for each in routes if each.body is not None]
    if not schema:
        return {}
    shown = {name: value for each in routes for name, value in each.examples(sample).items()}
    main, *others = routes[0].body_types
    body = one_of(schema)
    return {main: Body(body, shown), **{kind: Body(body, {}) for kind in others}}
