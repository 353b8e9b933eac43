"""Objects of KServe against the models of its SDK: which keys of them the models lack."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import kserve.models
import kubernetes.client.models

VERSIONS = {"v1alpha1": "V1alpha1", "v1beta1": "V1beta1"}
LIST, MAPPING = re.compile(r"list\[(.+)\]"), re.compile(r"dict\(str, (.+)\)")
# A type of Kubernetes' own API under the name that KServe's generator gives it.
OF_KUBERNETES = re.compile(r"K8sIoApi[A-Z][a-z]+(V[0-9]+)(.+)")


def unknown_keys(value: Any, kind: str, place: str) -> Iterator[str]:
    """Yield the places of keys that the model of a type does not have."""
    if found := LIST.fullmatch(kind):
        for number, item in enumerate(value):
            yield from unknown_keys(item, found[1], f"{place}[{number}]")
    elif found := MAPPING.fullmatch(kind):
        for name, item in value.items():
            yield from unknown_keys(item, found[1], f"{place}.{name}")
    elif model := _model(kind):
        names = {key: name for name, key in model.attribute_map.items()}
        for key, item in value.items():
            if key not in names:
                yield f"{place}.{key}"
            else:
                yield from unknown_keys(item, model.openapi_types[names[key]], f"{place}.{key}")


def _model(kind: str) -> Any:
    own = OF_KUBERNETES.sub(r"\1\2", kind)
    return getattr(kserve.models, kind, None) or getattr(kubernetes.client.models, own, None)


def main(job: dict[str, Any]) -> dict[str, list[str]]:
    found: list[str] = []
    for each in job["objects"]:
        kind, version = each["kind"], VERSIONS[each["apiVersion"].split("/")[1]]
        found.extend(unknown_keys(each, f"{version}{kind}", kind))
    return {"unknown": found}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
