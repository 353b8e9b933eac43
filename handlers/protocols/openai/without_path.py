"""OpenAI's bodies where no path identifies them, as text-generation-inference's on SageMaker.

    {"messages": […], "max_tokens": 20}   a chat
    {"prompt": "…", "model": "…"}         a prompt

Messages or a prompt without another key of OpenAI's are inputs for the Hugging Face protocol.
"""

from __future__ import annotations

from handlers.http.request import HttpRequest
from handlers.protocols.openai import protocol
from handlers.protocols.openai.bodies import ChatBody, CompletionBody
from handlers.protocols.openai.generation import Chat, Completions

PATHS = {"messages": Chat.path, "prompt": Completions.path}
SETTINGS = {*ChatBody.model_fields, *CompletionBody.model_fields} - PATHS.keys()
OTHER_KEYS = {"inputs", "parameters"}


class Protocol(protocol.Protocol):
    """Chats and prompts for models that generate texts, answered as on OpenAI's paths."""

    def recognises(self, http_request: HttpRequest) -> bool:
        if not self.model.continues_prompts or http_request.path or http_request.explains:
            return False
        content = http_request.content
        if not isinstance(content, dict) or not OTHER_KEYS.isdisjoint(content):
            return False
        return not (PATHS.keys().isdisjoint(content) or SETTINGS.isdisjoint(content))

    def _path(self, http_request: HttpRequest) -> str:
        return next(path for key, path in PATHS.items() if key in http_request.content)
