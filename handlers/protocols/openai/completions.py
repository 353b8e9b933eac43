"""`completions`: prompts to their continuations."""

from __future__ import annotations

from typing import Any

from handlers.protocols.openai.bodies import CompletionBody
from handlers.protocols.openai.generation import GenerationEndpoint


class Endpoint(GenerationEndpoint):
    """Continues one prompt or several."""

    path = "completions"
    kind = "text_completion"
    part = "text_completion"
    prefix = "cmpl"

    def body(self, content: Any) -> CompletionBody:
        return CompletionBody.of(content)

    def inputs(self, body: CompletionBody) -> list[Any]:
        return list(body.prompts)

    def choice(self, text: str) -> dict[str, Any]:
        return {"text": text, "logprobs": None}

    def piece(self, text: str, first: bool) -> dict[str, Any]:
        return self.choice(text)
