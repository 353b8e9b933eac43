"""`chat/completions`: the messages of a chat to the assistant's next."""

from __future__ import annotations

from typing import Any

from handlers.protocols.openai.bodies import ChatBody
from handlers.protocols.openai.generation import GenerationEndpoint


class Endpoint(GenerationEndpoint):
    """Answers chats by the checkpoint's own chat template."""

    path = "chat/completions"
    kind = "chat.completion"
    part = "chat.completion.chunk"
    prefix = "chatcmpl"

    def body(self, content: Any) -> ChatBody:
        return ChatBody.of(content)

    def inputs(self, body: ChatBody) -> list[Any]:
        return [body.messages]

    def choice(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}, "logprobs": None}

    def piece(self, text: str, first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        return {"delta": {**role, "content": text} if text or first else {}, "logprobs": None}
