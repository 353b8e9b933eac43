"""The addresses of the application that name no model in their path, as other servers have them.

The table is what the application finds requests by, and what `/openapi.json` and `/docs` describe.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Api(StrEnum):
    """Whose address it is, which decides the shape of errors."""

    OPENAI = "OpenAI"
    ANTHROPIC = "Anthropic"
    COHERE = "Cohere"
    VLLM = "vLLM"
    EMBEDDINGS = "Text Embeddings Inference"
    GENERATION = "Text Generation Inference"
    OPEN_INFERENCE = "Open Inference Protocol"
    TORCHSERVE = "TorchServe"


@dataclass(frozen=True)
class Address:
    """An address without the name of a model.

    Attributes:
        path: its path; without the first slash, it is the path below the model.
        api: whose address it is.
        ability: what a model must do that is chosen without its name; empty for any model.
        example: a body.
        method: its HTTP method.
    """

    path: str
    api: Api
    ability: str = ""
    example: Mapping[str, Any] = field(default_factory=dict)
    method: str = "POST"

    @property
    def names_model_in_body(self) -> bool:
        """Whether clients name the model in the key `model` of the body."""
        return self.api in (Api.OPENAI, Api.ANTHROPIC, Api.COHERE, Api.VLLM)


_TEXT, _MESSAGES = "A lovely film.", [{"role": "user", "content": "Hello"}]
_AUDIO = {"file": "@speech.wav"}
_DOCUMENTS = {"query": "Who sings?", "documents": ["Ada sings.", "It rains."]}

ADDRESSES = (
    Address("/v1/chat/completions", Api.OPENAI, "continues_prompts", {"messages": _MESSAGES}),
    Address("/v1/completions", Api.OPENAI, "continues_prompts", {"prompt": "Once upon a time"}),
    Address("/v1/responses", Api.OPENAI, "continues_prompts", {"input": "Hello"}),
    Address(
        "/v1/messages",
        Api.ANTHROPIC,
        "continues_prompts",
        {"messages": _MESSAGES, "max_tokens": 20},
    ),
    Address(
        "/v1/messages/count_tokens", Api.ANTHROPIC, "continues_prompts", {"messages": _MESSAGES}
    ),
    Address("/v1/embeddings", Api.OPENAI, "embed", {"input": _TEXT}),
    Address("/embeddings", Api.OPENAI, "embed", {"input": _TEXT}),
    Address("/v1/moderations", Api.OPENAI, "moderates", {"input": _TEXT}),
    Address(
        "/v1/decisions",
        Api.OPENAI,
        "decides",
        {"input": _TEXT, "questions": [{"type": "predicate", "instructions": "It is praised."}]},
    ),
    Address(
        "/v1/systemone",
        Api.OPENAI,
        "decides",
        {
            "state": _TEXT,
            "questions": {"praise": {"type": "noul", "instructions": "It is praised."}},
        },
    ),
    *(
        Address(f"{version}/{path}", Api.OPENAI, ability, example)
        for path, ability, example in (
            ("score", "scores", {"text_1": "Who sings?", "text_2": ["Ada sings.", "It rains."]}),
            ("classify", "predict", {"input": _TEXT}),
            ("pooling", "pools", {"input": _TEXT}),
        )
        for version in ("", "/v1")
    ),
    Address("/v1/images/generations", Api.OPENAI, "generates_images", {"prompt": "A fox"}),
    Address("/v1/audio/transcriptions", Api.OPENAI, "transcribe", _AUDIO),
    Address("/v1/audio/translations", Api.OPENAI, "transcribe", _AUDIO),
    Address("/v1/audio/speech", Api.OPENAI, "speak", {"input": _TEXT, "voice": "default"}),
    Address("/v1/embed", Api.COHERE, "embed", {"texts": [_TEXT]}),
    Address("/v2/embed", Api.COHERE, "embed", {"texts": [_TEXT], "input_type": "search_document"}),
    Address("/v1/rerank", Api.COHERE, "rerank", _DOCUMENTS),
    Address("/v2/rerank", Api.COHERE, "rerank", _DOCUMENTS),
    Address("/rerank", Api.EMBEDDINGS, "rerank", {"query": "Who sings?", "texts": ["Ada sings."]}),
    Address("/embed", Api.EMBEDDINGS, "embed", {"inputs": _TEXT}),
    Address("/embed_all", Api.EMBEDDINGS, "embed_all", {"inputs": _TEXT}),
    Address("/embed_sparse", Api.EMBEDDINGS, "embed_sparse", {"inputs": _TEXT}),
    Address(
        "/similarity",
        Api.EMBEDDINGS,
        "similarity",
        {"inputs": {"source_sentence": "Ada sings.", "sentences": ["She sang."]}},
    ),
    Address("/predict", Api.EMBEDDINGS, "predict", {"inputs": _TEXT}),
    Address("/decode", Api.EMBEDDINGS, example={"ids": [5, 6, 7]}),
    Address("/info", Api.EMBEDDINGS, method="GET"),
    Address("/tokenize", Api.VLLM, example={"prompt": _TEXT}),
    Address("/detokenize", Api.VLLM, example={"tokens": [5, 6, 7]}),
    Address("/generate", Api.GENERATION, "generates", {"inputs": "Once upon a time"}),
    Address("/generate_stream", Api.GENERATION, "generates", {"inputs": "Once upon a time"}),
    Address("/redact", Api.TORCHSERVE, "redacts", {"inputs": "Ada lives in Paris."}),
    Address("/", Api.GENERATION, example={"inputs": _TEXT}),
)
BY_PATH = {each.path: each for each in ADDRESSES}
RESPONSES = "/v1/responses"
# A stored response, whose id begins with a hash of the name of its model.
STORED_RESPONSE = re.compile(RESPONSES + r"/(?P<id>[^/]+)(?P<part>/input_items|/cancel)?")

# What models of each mode do, as their tasks declare it. The application imports no task, because
# that takes seconds and all of torch.
ABILITIES: Mapping[str, tuple[str, ...]] = {
    "automatic_speech_recognition": ("transcribe",),
    "feature_extraction": ("embed_all", "pools"),
    "image_text_to_text": ("continues_prompts", "generates"),
    "late_interaction": ("pools", "rerank", "scores"),
    "multimodal_embedding": ("embed", "pools", "scores"),
    "sentence_embedding": ("embed", "pools", "scores"),
    "sentence_ranking": ("rerank", "scores"),
    "sentence_similarity": ("scores", "similarity"),
    "sequence_classification": ("decides", "moderates", "predict"),
    "sparse_embedding": ("embed_sparse",),
    "summarization": ("generates",),
    "text2text_generation": ("generates",),
    "text_generation": ("continues_prompts", "decides", "generates", "moderates"),
    "text_to_image": ("generates_images",),
    "text_to_speech": ("speak",),
    "token_classification": ("redacts",),
    "translation": ("generates",),
    "zero_shot_classification": ("decides",),
    "zero_shot_token_classification": ("redacts",),
}


def model_of_response(response_id: str, names: Iterable[str]) -> str:
    """Return which of some models has made a response; empty where none of them has.

    `id_prefix` of :mod:`hf_serve.handlers.protocols.openai.responses` writes the ids.
    """
    for name in names:
        if response_id.startswith(f"resp_{hashlib.sha256(name.encode()).hexdigest()[:8]}"):
            return name
    return ""


def api_of(path: str) -> Api:
    """Return whose address a path is, for the shape of its errors."""
    if path in BY_PATH:
        return BY_PATH[path].api
    if path.startswith("/v2"):
        return Api.OPEN_INFERENCE
    # KServe's V1, whose errors are those of TorchServe, is /v1/models/<model>:predict.
    if path.startswith("/v1") and ":" not in path:
        return Api.OPENAI
    return Api.TORCHSERVE
