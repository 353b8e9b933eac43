"""TorchServe's routes of models: what a path names, and what the handler gets of it.

POST /predictions/<model>[/<version>[/<path>]]
POST /explanations/<model>[/<version>[/<path>]]
POST /v1/models/<model>:predict, :explain
POST /v2/models/<model>[/versions/<version>]/infer, /explain
POST /invocations?model_name=<model>[&path=<path>], /models/<model>/invoke[?path=<path>]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from hf_serve.handlers.errors import NotFound, RequestError

MODEL_ROUTES = (
    re.compile(
        r"/(?P<verb>predictions|explanations)/(?P<model>[^/]+)"
        r"(?:/(?P<version>[^/]+)(?:/(?P<path>.*))?)?/?"
    ),
    re.compile(r"/v1/models/(?P<model>[^/:]+):(?P<verb>predict|explain)"),
    re.compile(
        r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/(?P<verb>infer|explain)"
    ),
    re.compile(r"/models/(?P<model>[^/]+)/(?P<verb>invoke)"),
)
# The path below a model in the query; `handlers.http.request` of older archives has no name for it.
PATH_FIELD = "path"
# The routes whose query TorchServe gives the handler, as it is in the fields of a form.
WITH_QUERY = re.compile(r"/invocations|/models/[^/]+/invoke")
METHODS = ("GET", "POST", "PUT")
EXPLAINS = ("explanations", "explain")
INVOCATIONS = "/invocations"
PING = "/ping"


class UnknownRoute(NotFound):
    """No route has this path; type and sentence are TorchServe's."""

    def __init__(self) -> None:
        super().__init__("Requested resource is not found, please refer to API document.")


class MethodNotAllowed(RequestError):
    """The route does not take the method; type and sentence are TorchServe's.

    Args:
        allowed: the methods that it takes.
    """

    status, kind = 405, "MethodNotAllowedException"

    def __init__(self, allowed: Sequence[str] = METHODS) -> None:
        self.headers = {"Allow": ", ".join(allowed)}
        super().__init__("Requested method is not allowed, please refer to API document.")


@dataclass(frozen=True)
class Route:
    """Where a request goes.

    Attributes:
        model: the name of the model; empty for the only one.
        version: its version; empty for any.
        headers: what TorchServe adds to the headers of the request.
    """

    model: str
    version: str
    headers: Mapping[str, str]


def query_fields(address: str) -> dict[str, str]:
    """Return the fields that TorchServe makes of the query of a request.

    `model`, which names the model for the application alone, is left out.

    Args:
        address: the path of the request, with its query.
    """
    path, _, query = address.partition("?")
    if not WITH_QUERY.fullmatch(path):
        return {}
    fields = dict(parse_qsl(query, keep_blank_values=True))
    return {name: value for name, value in fields.items() if name != "model"}


def find_route(path: str, query: Mapping[str, Any]) -> Route:
    """Return the route of a path to a model.

    Raises:
        UnknownRoute: there is none.
    """
    if path == INVOCATIONS:
        url_path = str(query.get(PATH_FIELD, ""))
        return Route(str(query.get("model_name", "")), "", {"url_path": url_path})
    for pattern in MODEL_ROUTES:
        if found := pattern.fullmatch(path):
            groups = found.groupdict(default="")
            headers = {"explain": str(groups["verb"] in EXPLAINS)}
            # The other routes leave this header as the client has set it, as TorchServe does.
            if "path" in groups:
                headers["url_path"] = groups["path"]
            elif groups["verb"] == "invoke" and PATH_FIELD in query:
                headers["url_path"] = str(query[PATH_FIELD])
            return Route(groups["model"], groups.get("version", ""), headers)
    raise UnknownRoute
