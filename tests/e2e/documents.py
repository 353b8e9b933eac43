"""An OpenAPI document of a mode, and checks of a server's answers against it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from hf_serve.scripts import openapi
from tests.e2e.asking import Question

JSON, EVENTS = "application/json", "text/event-stream"


@dataclass(frozen=True)
class Example:
    """A body to send: its path, content type, schema and value."""

    path: str
    kind: str
    schema: Any
    value: Any

    def question(self, model: str, value: Any = None, **headers: str) -> Question:
        """Return the request that sends it, or another value in its place."""
        sent = self.value if value is None else value
        body = json.dumps(sent) if self.kind == JSON else sent
        place = self.path.format(model=model, version="1.0")
        return Question(place, body.encode(), {"Content-Type": self.kind, **headers})


class Document:
    """The document of a mode."""

    def __init__(self, mode: str) -> None:
        whole = json.loads(json.dumps(openapi.document(mode)))
        self.paths: dict[str, Any] = whole["paths"]
        self._components = whole["components"]

    def fits(self, schema: Any, value: Any) -> bool:
        """Return whether a schema allows a value."""
        return bool(self._validator(schema).is_valid(value))

    def check(self, path: str, answer: httpx.Response) -> None:
        """Check an answer against the schema of its status and content type."""
        operation = next(iter(self.paths[path].values()))
        kind = answer.headers["content-type"].split(";")[0]
        schema = operation["responses"][str(answer.status_code)]["content"][kind]["schema"]
        value = answer.json() if kind == JSON else answer.text
        self._validator(schema, strict=True).validate(value)
        if "x-part" in schema:
            part = self._validator(schema["x-part"], strict=True)
            for each in parts(answer.text, kind):
                part.validate(each)

    def examples(self) -> Iterator[Example]:
        """Return the examples of every body."""
        for path, methods in self.paths.items():
            content = methods.get("post", {}).get("requestBody", {}).get("content", {})
            for kind, media in content.items():
                for each in media["examples"].values():
                    yield Example(path, kind, media["schema"], each["value"])

    def example(self, path: str) -> Example:
        """Return the first example of a path."""
        return next(each for each in self.examples() if each.path == path)

    def _validator(self, schema: Any, *, strict: bool = False) -> Draft202012Validator:
        whole = {**schema, "components": self._components}
        return Draft202012Validator(closed(whole) if strict else whole)


def closed(schema: Any) -> Any:
    """Return a schema in which objects have only the described properties."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    described = schema.get("type") == "object" and "properties" in schema
    return {"additionalProperties": False, **inner} if described else inner


def parts(text: str, content_type: str) -> list[Any]:
    """Return the JSON of the parts of a stream, without the event that ends it."""
    lines = [line for line in text.split("\n") if line]
    if content_type == EVENTS:
        data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
        lines = [line for line in data if line != "[DONE]"]
    return [json.loads(line) for line in lines]
