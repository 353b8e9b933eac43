"""OpenAI's API below the model's path: one file for each endpoint."""

from handlers.protocols.openai.protocol import Protocol

__all__ = ["Protocol"]
