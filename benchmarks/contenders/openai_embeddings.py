"""Requests of embeddings as OpenAI's client sends them.

https://github.com/openai/openai-python/blob/main/src/openai/resources/embeddings.py
"""

from __future__ import annotations

import json
from typing import Any


def embeddings_body(inputs: Any) -> str:
    """Return the body of a request, which asks for vectors in base64 as the client does."""
    return json.dumps({"model": "model", "input": inputs, "encoding_format": "base64"})
