"""The protocol's paths below a model's own, `/predictions/<model>/<version>/`.

    v2                       what server this is
    v2/health/live, ready    whether it answers
    v2/models                which models there are: the one of this path
    v2/models/M              what that one takes and gives; also M/versions/V, here and below
    v2/models/M/ready        whether it answers
    v2/models/M/infer        ask it
    v2/models/M/explain      ask why

TorchServe's own routes `/v2/models/M/infer` and `explain` come without a path.
"""

from __future__ import annotations

import re

from handlers.errors import NotFound
from handlers.schemas.model_info import ModelInfo

BEGINS = re.compile(r"v2(/|$)")
MODEL = re.compile(r"v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?(?:/(?P<end>.+))?")
INFER = "infer"
TOLD = {
    "v2": "server",
    "v2/health/live": "live",
    "v2/health/ready": "ready",
    "v2/models": "models",
}
OF_MODEL = {None: "model", "ready": "model_ready", "infer": INFER, "explain": INFER}


def purpose_of(path: str, model: ModelInfo) -> str:
    """Return what a path is for: `infer`, or the name of something that is told.

    Raises:
        NotFound: it is for nothing, or for another model.
    """
    if not BEGINS.match(path):
        return INFER  # told by its body, on a route that is no other protocol's
    if path in TOLD:
        return TOLD[path]
    found = MODEL.fullmatch(path)
    if found is None or found["end"] not in OF_MODEL:
        raise NotFound(f"There is no {path} here; there are {', '.join(_paths(model))}.")
    if found["name"] != model.name:
        raise NotFound(f"There is no model {found['name']} here; there is {model.name}.")
    if found["version"] not in (None, model.version):
        raise NotFound(
            f"There is no version {found['version']} of {model.name} here; there is"
            f" {model.version}."
        )
    return OF_MODEL[found["end"]]


def _paths(model: ModelInfo) -> list[str]:
    ends = (f"/{end}" if end else "" for end in OF_MODEL)
    return [*TOLD, *(f"v2/models/{model.name}{end}" for end in ends)]
