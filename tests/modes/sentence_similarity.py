"""The test cases of sentence similarity."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases


def with_text(text: Any) -> Any:
    return {"source_sentence": "Who sings?", "sentences": text}


CASES = ModeCases(
    inputs=[with_text([FINE, ODD, LONG]), with_text("dull"), with_text([LONG, "dull"])],
    parameters=[{}, {"prompt": "A text: "}],
    brief={},
    with_text=with_text,
    text_name="sentences",
    rows=[with_text(FINE), with_text(ODD), with_text("dull")],
    accepted=[("prompt", "x" * 100)],
)
