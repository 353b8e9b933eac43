"""Examples of bodies, from the sample of each mode."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

from hf_serve.handlers import tasks
from hf_serve.handlers.explainers import targets

Examples = dict[str, Any]


def predictions(mode: str) -> Examples:
    """Return bodies of the Hugging Face protocol and of the old example."""
    sample = tasks.get(mode).description.wire.example
    inputs, given = sample["inputs"], sample.get("parameters", {})
    found = {
        "one": dict(sample),
        "list": {"inputs": [inputs, inputs], "parameters": given},
        "parameters": {"inputs": inputs, "parameters": {**_defaults(mode), **given}},
        "old": _old(mode, inputs),
    }
    task = tasks.get(mode)
    if not task.description.generation.texts:
        return found
    # Pipelines of encoder-decoders search with beams, which have no most likely tokens.
    one_beam = {"num_beams": 1} if task.description.generation.is_encoder_decoder else {}
    details = {"details": True, "top_n_tokens": 2, **one_beam}
    detailed = {**sample, "parameters": {**given, **details}}
    streams = {
        name: {**body, "stream": True} for name, body in (("stream", sample), ("tokens", detailed))
    }
    return {**found, "details": detailed, **streams}


def explanations(mode: str) -> Examples:
    """Return bodies of explanations."""
    inputs, target = tasks.get(mode).description.wire.example["inputs"], targets.get(mode)
    if target is None:
        return {}
    quick = target.example_parameters
    return {
        "one": {"inputs": inputs},
        "list": {"inputs": [inputs, inputs], "parameters": quick},
        "parameters": {"inputs": inputs, "parameters": {**_default_parameters(mode), **quick}},
        "old": {**_old(mode, inputs), "target": target.example_target},
    }


def instances(mode: str) -> Examples:
    """Return bodies of KServe's V1."""
    inputs = tasks.get(mode).description.wire.example["inputs"]
    short = tasks.get(mode).description.wire.example.get("parameters", {})
    return {
        "plain": {"instances": [inputs, inputs], "parameters": short},
        "objects": {"instances": [{"inputs": inputs, "parameters": short}, _old(mode, inputs)]},
    }


def texts(mode: str) -> Examples:
    """Return a text alone, for a mode whose sample is one."""
    inputs = tasks.get(mode).description.wire.example["inputs"]
    return {"text": inputs} if isinstance(inputs, str) else {}


def lines(mode: str) -> Examples:
    """Return JSON Lines of two requests."""
    line = json.dumps(tasks.get(mode).description.wire.example)
    return {"lines": f"{line}\n{line}\n"}


def table(mode: str) -> Examples:
    """Return a table with a header and one row; none where a cell would not be a text."""
    parts = _old(mode, tasks.get(mode).description.wire.example["inputs"])
    if not all(isinstance(value, str) for value in parts.values()):
        return {}
    stream = StringIO()
    csv.writer(stream, lineterminator="\n").writerows([parts.keys(), parts.values()])
    return {"table": stream.getvalue()}


def tensors(mode: str) -> Examples:
    """Return bodies of the Open Inference Protocol."""
    parts = _old(mode, tasks.get(mode).description.wire.example["inputs"])
    inputs = [_tensor(name, value) for name, value in parts.items()]
    return {"one": {"id": "42", "inputs": inputs}}


def _tensor(name: str, value: Any) -> dict[str, Any]:
    tensor = {"name": name, "shape": [1], "datatype": "BYTES"}
    if isinstance(value, str):
        return {**tensor, "data": [value]}
    return {**tensor, "data": [json.dumps(value)], "parameters": {"content_type": "hg_json"}}


def _old(mode: str, inputs: Any) -> dict[str, Any]:
    """Return inputs as an object, with the name of their column where they are one value."""
    column = tasks.get(mode).description.wire.input_columns[0][0]
    return dict(inputs) if isinstance(inputs, Mapping) else {column: inputs}


def _defaults(mode: str) -> dict[str, Any]:
    """Return every parameter that has a default other than null."""
    return tasks.get(mode).parameters().model_dump(mode="json", exclude_none=True)


def _default_parameters(mode: str) -> dict[str, Any]:
    target = targets.get(mode)
    return dict(target.default_parameters) if target else {}
