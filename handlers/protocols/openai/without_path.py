"""OpenAI's bodies where no path can say so, as text-generation-inference's on SageMaker.

    {"messages": […], "max_tokens": 20}   a chat
    {"prompt": "…", "model": "…"}         a prompt

With nothing beside them that is OpenAI's, messages or a prompt are what Hugging Face calls inputs.
"""

from __future__ import annotations

from handlers.http.request import HttpRequest
from handlers.protocols.openai import protocol
from handlers.protocols.openai.bodies import ChatBody, CompletionBody
from handlers.protocols.openai.chat import Endpoint as Chat
from handlers.protocols.openai.completions import Endpoint as Completions
from handlers.protocols.openai.endpoint import BaseEndpoint

ASKED = {"messages": Chat.path, "prompt": Completions.path}
SETTINGS = {*ChatBody.model_fields, *CompletionBody.model_fields} - ASKED.keys()
OTHERS = {"inputs", "parameters"}


class Protocol(protocol.Protocol):
    """Chats and prompts of models that write texts, answered as below OpenAI's paths."""

    def recognises(self, http_request: HttpRequest) -> bool:
        if self.model.mode != "text_generation" or http_request.path or http_request.explains:
            return False
        content = http_request.content
        if not isinstance(content, dict) or not OTHERS.isdisjoint(content):
            return False
        return not (ASKED.keys().isdisjoint(content) or SETTINGS.isdisjoint(content))

    def _endpoint(self, http_request: HttpRequest) -> BaseEndpoint:
        asked = next(name for name in ASKED if name in http_request.content)
        return self._endpoints[ASKED[asked]]
