"""OpenAI's API, below the model's path and by its bodies alone."""

from handlers.protocols.openai.protocol import Protocol

__all__ = ["Protocol"]
