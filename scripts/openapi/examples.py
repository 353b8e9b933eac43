"""Examples of bodies, from the sample of each mode."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

from handlers import tasks
from handlers.explainers import targets

Examples = dict[str, Any]
MESSAGES = [{"role": "user", "content": "Once upon a time"}]
FEW = {"max_tokens": 8}
SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["fox", "bear"]}},
    "required": ["animal"],
    "additionalProperties": False,
}
NAMED = {"name": "story", "schema": SCHEMA, "strict": True}
TOOL = {"type": "function", "function": {"name": "find_animal", "parameters": SCHEMA}}
IDS = [5, 6, 7]
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def predictions(mode: str) -> Examples:
    """Return bodies of the Hugging Face protocol and of the old example."""
    sample = tasks.get(mode).sample
    inputs, given = sample["inputs"], sample.get("parameters", {})
    found = {
        "one": dict(sample),
        "list": {"inputs": [inputs, inputs], "parameters": given},
        "parameters": {"inputs": inputs, "parameters": {**_defaults(mode), **given}},
        "old": _old(mode, inputs),
    }
    task = tasks.get(mode)
    if not task.generates:
        return found
    # Pipelines of encoder-decoders search with beams, which have no most likely tokens.
    one_beam = {"num_beams": 1} if task.is_encoder_decoder else {}
    details = {"details": True, "top_n_tokens": 2, **one_beam}
    detailed = {**sample, "parameters": {**given, **details}}
    streams = {
        name: {**body, "stream": True} for name, body in (("stream", sample), ("tokens", detailed))
    }
    return {**found, "details": detailed, **streams}


def explanations(mode: str) -> Examples:
    """Return bodies of explanations."""
    inputs, target = tasks.get(mode).sample["inputs"], targets.get(mode)
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
    inputs = tasks.get(mode).sample["inputs"]
    short = tasks.get(mode).sample.get("parameters", {})
    return {
        "plain": {"instances": [inputs, inputs], "parameters": short},
        "objects": {"instances": [{"inputs": inputs, "parameters": short}, _old(mode, inputs)]},
    }


def texts(mode: str) -> Examples:
    """Return a text alone, for a mode whose sample is one."""
    inputs = tasks.get(mode).sample["inputs"]
    return {"text": inputs} if isinstance(inputs, str) else {}


def lines(mode: str) -> Examples:
    """Return JSON Lines of two requests."""
    line = json.dumps(tasks.get(mode).sample)
    return {"lines": f"{line}\n{line}\n"}


def table(mode: str) -> Examples:
    """Return a table with a header and one row; none where a cell would not be a text."""
    parts = _old(mode, tasks.get(mode).sample["inputs"])
    if not all(isinstance(value, str) for value in parts.values()):
        return {}
    stream = StringIO()
    csv.writer(stream, lineterminator="\n").writerows([parts.keys(), parts.values()])
    return {"table": stream.getvalue()}


def tensors(mode: str) -> Examples:
    """Return bodies of the Open Inference Protocol."""
    parts = _old(mode, tasks.get(mode).sample["inputs"])
    inputs = [_tensor(name, value) for name, value in parts.items()]
    return {"one": {"id": "42", "inputs": inputs}}


def _tensor(name: str, value: Any) -> dict[str, Any]:
    tensor = {"name": name, "shape": [1], "datatype": "BYTES"}
    if isinstance(value, str):
        return {**tensor, "data": [value]}
    return {**tensor, "data": [json.dumps(value)], "parameters": {"content_type": "hg_json"}}


def chats() -> Examples:
    """Return bodies of `chat/completions`."""
    chat = {"messages": MESSAGES, **FEW}
    scored = {**chat, "logprobs": True, "top_logprobs": 2}
    return {
        "one": chat,
        "logprobs": scored,
        "stream": {**scored, **STREAM},
        "schema": {**chat, "response_format": {"type": "json_schema", "json_schema": NAMED}},
        "tools": {**chat, "tools": [TOOL], "tool_choice": "auto"},
    }


def completions(mode: str) -> Examples:
    """Return bodies of `completions`."""
    prompt = tasks.get(mode).sample["inputs"]
    return {
        "one": {"prompt": prompt, **FEW},
        "list": {"prompt": [prompt, prompt], **FEW},
        "logprobs": {"prompt": prompt, **FEW, "logprobs": 2},
        "stream": {"prompt": prompt, **FEW, **STREAM},
    }


def responses() -> Examples:
    """Return bodies of `responses`."""
    few = {"max_output_tokens": 8}
    return {
        "one": {"input": "Once upon a time", "instructions": "Tell a story.", **few},
        "conversation": {"input": MESSAGES, "temperature": 0, **few},
        "stream": {"input": MESSAGES, "stream": True, **few},
    }


def image_prompts() -> Examples:
    """Return bodies of `images/generations`."""
    few = {"prompt": "a red circle", "num_inference_steps": 20, "seed": 1}
    return {
        "one": {**few, "response_format": "b64_json"},
        "several": {**few, "n": 2, "output_format": "webp"},
        "stream": {**few, "stream": True},
    }


def prompts(mode: str) -> Examples:
    """Return bodies of text-generation-inference's paths."""
    sample = tasks.get(mode).sample
    return {"one": dict(sample), "inputs": {"inputs": sample["inputs"]}}


def texts_to_tokenize(mode: str) -> Examples:
    """Return bodies of `tokenize`."""
    text = "Once upon a time"
    found = {
        "one": {"inputs": text, "add_special_tokens": True},
        "list": {"inputs": [text, text]},
        "prompt": {"prompt": text, "add_special_tokens": False},
    }
    task = tasks.get(mode)
    has_chats = task.generates and not task.is_encoder_decoder
    return {**found, "chat": {"messages": MESSAGES}} if has_chats else found


def ids() -> Examples:
    """Return bodies of `detokenize`."""
    return {"one": {"tokens": IDS}}


def embedded_texts(mode: str, **settings: Any) -> Examples:
    """Return bodies of text-embeddings-inference's paths to vectors, some with settings."""
    text = tasks.get(mode).sample["inputs"]
    several = {"inputs": [text, text], "truncate": True, **settings}
    return {"one": {"inputs": text}, "list": several}


def openai_texts(mode: str) -> Examples:
    """Return bodies of `embeddings`."""
    text = tasks.get(mode).sample["inputs"]
    return {
        "one": {"input": text},
        "list": {"input": [text, text], "encoding_format": "base64", "dimensions": 4},
        "ids": {"input": [IDS, IDS]},
    }


def texts_of_types(mode: str) -> Examples:
    """Return bodies of Cohere's `embed`."""
    texts = [tasks.get(mode).sample["inputs"]] * 2
    types = ["float", "int8", "ubinary", "base64"]
    return {
        "one": {"texts": texts, "input_type": "search_document", "truncate": "END"},
        "types": {"texts": texts, "embedding_types": types, "output_dimension": 8},
        "inputs": {"inputs": [{"content": [{"type": "text", "text": texts[0]}]}]},
    }


def ranked_texts(mode: str) -> Examples:
    """Return bodies of text-embeddings-inference's `rerank`."""
    query, texts = _query_and_texts(mode)
    body = {"query": query, "texts": texts}
    return {"texts": body, "scores": {**body, "raw_scores": True, "return_text": True}}


def ranked_documents(mode: str) -> Examples:
    """Return bodies of Cohere's `rerank`."""
    query, (text, *others) = _query_and_texts(mode)
    body = {"query": query, "documents": [{"text": text}, *others]}
    return {"documents": body, "best": {**body, "top_n": 1, "return_documents": True}}


def similarities() -> Examples:
    """Return bodies of text-embeddings-inference's `similarity`."""
    inputs = {"source_sentence": "Nina sings in the bar.", "sentences": ["She sang in a pub."]}
    return {"one": {"inputs": inputs, "parameters": {"truncate": True}}}


def classified_texts(mode: str) -> Examples:
    """Return bodies of text-embeddings-inference's `predict`."""
    text = tasks.get(mode).sample["inputs"]
    return {
        "one": {"inputs": text},
        "list": {"inputs": [[text], [text, text]], "raw_scores": True},
    }


def decoded_ids() -> Examples:
    """Return bodies of text-embeddings-inference's `decode`."""
    return {"one": {"ids": IDS}, "list": {"ids": [IDS, IDS], "skip_special_tokens": False}}


def _query_and_texts(mode: str) -> tuple[str, list[str]]:
    query, *texts = tasks.get(mode).sample["inputs"].values()
    text = texts[0] if isinstance(texts[0], str) else texts[0][0]
    return query, [text, "It rains today."]


def _old(mode: str, inputs: Any) -> dict[str, Any]:
    """Return inputs as an object, with the name of their column where they are one value."""
    column = tasks.get(mode).input_columns[0][0]
    return dict(inputs) if isinstance(inputs, Mapping) else {column: inputs}


def _defaults(mode: str) -> dict[str, Any]:
    """Return every parameter that has a default other than null."""
    return tasks.get(mode).parameters().model_dump(mode="json", exclude_none=True)


def _default_parameters(mode: str) -> dict[str, Any]:
    target = targets.get(mode)
    return dict(target.default_parameters) if target else {}
