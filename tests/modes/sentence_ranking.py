"""The test cases of sentence ranking."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases

QUERY = "Who sings in Paris?"


def with_text(text: Any) -> Any:
    return {"text": "Who sings?", "text_pair": text}


CASES = ModeCases(
    inputs=[
        {"query": QUERY, "texts": [FINE, ODD, LONG, "dull"]},
        {"query": QUERY, "documents": [ODD, {"text": FINE}]},
        {"query": ODD, "texts": FINE},
        with_text(FINE),
        with_text(LONG),
        [QUERY, ODD],
    ],
    parameters=[{}, {"top_n": 2, "return_documents": True}, {"raw_scores": True}],
    brief={"raw_scores": True},
    config={"id2label": {0: "LABEL_0"}},
    with_text=with_text,
    text_name="text_pair",
    rows=[with_text(FINE), with_text(ODD), with_text("dull")],
)
