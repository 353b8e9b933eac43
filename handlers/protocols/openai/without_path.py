"""OpenAI's bodies where no path identifies them, as text-generation-inference's on SageMaker.

    {"messages": […], "max_tokens": 20}   a chat
    {"prompt": "…", "model": "…"}         a prompt
    {"input": "…", "model": "…"}          an embedding

Messages or a prompt without another key of OpenAI's are inputs for the Hugging Face protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from ...http.request import HttpRequest
from .. import openai
from .bodies import CHAT, COMPLETIONS
from .embeddings import Embeddings
from .generation import Chat, Completions

GENERATION = {"messages": Chat.path(), "prompt": Completions.path()}
SETTINGS = {*CHAT.keys, *COMPLETIONS.keys} - GENERATION.keys()
OTHER_KEYS = {"inputs", "parameters"}


class Protocol(openai.Protocol):
    """Chats, prompts and texts to embed, answered as on OpenAI's paths."""

    body_keys = MappingProxyType({**dict.fromkeys(GENERATION, object), "input": object})
    routes = ()

    @property
    def paths(self) -> Collection[str] | None:
        return None

    def recognises(self, http_request: HttpRequest) -> bool:
        if http_request.path or http_request.explains or not self._paths:
            return False
        content = http_request.content
        if not isinstance(content, dict) or not OTHER_KEYS.isdisjoint(content):
            return False
        if self.model.task.generation.continues_prompts and SETTINGS.isdisjoint(content):
            return False
        return not self._paths.keys().isdisjoint(content)

    def _path(self, http_request: HttpRequest) -> str:
        content = http_request.content
        return next((path for key, path in self._paths.items() if key in content), "")

    @property
    def _paths(self) -> Mapping[str, str]:
        """The endpoint of each key that a body for this model has."""
        if self.model.task.generation.continues_prompts:
            return GENERATION
        return {"input": Embeddings.path()} if self.model.task.service == "embed" else {}
