"""The OpenAPI document of a mode, and the files of all of them.

https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from hf_serve.handlers import __version__
from hf_serve.handlers.config.handler_section import modes
from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.openapi.operations import common_operations, route_operations, routes_of
from hf_serve.scripts.openapi.schemas import schemas
from hf_serve.scripts.serving.ports import HOST, Ports

DOCUMENTS = ROOT / "build" / "openapi"
ABOUT = """\
The requests and responses of a model of mode `{mode}` that this kit serves on TorchServe. Its own \
limits, labels and defaults, and what generates its texts where it has any, are in \
`GET /models/{{model}}?customized=true` of the management address."""


def document(mode: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a mode."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    routes = routes_of(mode)
    known = schemas(mode, routes)
    made = [*common_operations(mode, known), *route_operations(mode, routes, known)]
    served = {"model": mode, "version": "1.0"}
    return {
        "openapi": "3.1.1",
        "info": {
            "title": f"{mode.replace('_', ' ').capitalize()} on TorchServe",
            "version": __version__,
            "description": ABOUT.format(mode=mode),
            "license": {"name": project["license"], "identifier": project["license"]},
        },
        "servers": [{"url": f"http://{HOST}:{Ports().inference}"}],
        "paths": {each.path: {each.method: each.as_json(served)} for each in made},
        "components": {"schemas": dict(sorted(known.components.items()))},
    }


def write(folder: Path = DOCUMENTS) -> list[Path]:
    """Write the document of every mode; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / f"{mode}.json", mode) for mode in modes()]


def _write(path: Path, mode: str) -> Path:
    text = json.dumps(document(mode), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path
