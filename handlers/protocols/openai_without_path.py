"""OpenAI's bodies where no path can say so, as text-generation-inference's on SageMaker.

    {"messages": […], "max_tokens": 20}   a chat
    {"prompt": "…", "model": "…"}         a prompt

With nothing beside them that is OpenAI's, messages or a prompt are what Hugging Face calls inputs.
"""

from __future__ import annotations

from handlers.bodies import Post
from handlers.openai.base import BaseEndpoint
from handlers.openai.bodies import ChatBody, CompletionBody
from handlers.openai.chat import Endpoint as Chat
from handlers.openai.completions import Endpoint as Completions
from handlers.protocols import openai

ASKED = {"messages": Chat.path, "prompt": Completions.path}
SETTINGS = {*ChatBody.model_fields, *CompletionBody.model_fields} - ASKED.keys()
OTHERS = {"inputs", "parameters"}


class Protocol(openai.Protocol):
    """Chats and prompts of models that write texts, answered as below OpenAI's paths."""

    rank = 60

    def recognises(self, post: Post) -> bool:
        if self.model.mode != "text_generation" or post.path or post.explains:
            return False
        content = post.content
        if not isinstance(content, dict) or not OTHERS.isdisjoint(content):
            return False
        return not (ASKED.keys().isdisjoint(content) or SETTINGS.isdisjoint(content))

    def _endpoint(self, post: Post) -> BaseEndpoint:
        asked = next(name for name in ASKED if name in post.content)
        return self._endpoints[ASKED[asked]]
