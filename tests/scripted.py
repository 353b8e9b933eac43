"""A model that writes a given text, as far as its grammar allows that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from tests.serving import Served


class Script(LogitsProcessor):
    """Selects one token after the other; a token that the grammar excludes fails the test."""

    def __init__(self, ids: list[int], width: int) -> None:
        self._ids, self._width = ids, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the logits, with a high one for the next token of the text."""
        at = input_ids.shape[1] - self._width
        token = self._ids[min(at, len(self._ids) - 1)]
        allowed = ~scores[:, token].isneginf()
        assert allowed.all(), f"token {at} is excluded"
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([token]), 0.0)


def write(model: Served, text: str | Callable[[str], str], monkeypatch: Any) -> None:
    """Let a model write a text, which may depend on the prompt, and then its end token."""
    tokenizer = model.engine.task.checkpoint.tokenizer
    found: Any = model.engine.model.generate
    generate = getattr(found, "unscripted", found)  # without an earlier script

    def scripted(batch: Any, config: Any, **given: Any) -> Any:
        written = text if isinstance(text, str) else text(tokenizer.decode(batch["input_ids"][0]))
        ids = [*tokenizer(written, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        script = Script(ids, batch["input_ids"].shape[1])
        processors = LogitsProcessorList([*given.pop("logits_processor", ()), script])
        return generate(batch, config, logits_processor=processors, **given)

    scripted.unscripted = generate  # type: ignore[attr-defined]
    monkeypatch.setattr(model.engine.model, "generate", scripted)
