"""Text to text generation: a text to another one, as an encoder-decoder is trained to write it.

{"inputs": "question: Who sings? context: Nina sings.", "parameters": {"max_new_tokens": 20}}
-> [{"generated_text": "Nina"}]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NotRequired

from typing_extensions import TypedDict

from handlers.tasks._generation import Details
from handlers.tasks._text_to_text import TextToTextTask


class GeneratedText(TypedDict):
    """One text that was generated for another."""

    generated_text: str
    details: NotRequired[Details]


class Task(TextToTextTask):
    """Any text for a text; answers as the text2text-generation pipeline of transformers 4 does."""

    pipeline = "text2text-generation"
    results = GeneratedText | list[GeneratedText]
    sample: ClassVar[Mapping[str, Any]] = {
        "inputs": "Who sings in the bar? Nina sings in the bar near the river.",
        "parameters": {"max_new_tokens": 8},
    }
    result_columns = ("generated_text",)
