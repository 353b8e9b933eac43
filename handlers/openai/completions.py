"""`completions`: prompts to their continuations."""

from __future__ import annotations

from typing import Any

from handlers.openai.bodies import CompletionBody
from handlers.openai.generating import Generating


class Endpoint(Generating):
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
