"""The test cases of document question answering."""

from __future__ import annotations

import json
from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases
from tests.modes.image_classification import IMAGES
from tests.tiny_documents import page_of, write_layoutlm


def with_question(text: Any) -> Any:
    """Return a question about a page, in the form that tensors and tables of rows have."""
    return {"question": text, "word_boxes": json.dumps(page_of(FINE))}


CASES = ModeCases(
    inputs=[
        with_question(FINE),
        {"question": ODD, "word_boxes": page_of(ODD)},
        {"question": "Who sings?", "word_boxes": page_of(LONG), "image": IMAGES[0]},
        {"question": "Who sings?", "word_boxes": page_of("Ada sings.")},
    ],
    parameters=[
        {},
        {"top_k": 3, "doc_stride": 16, "max_seq_len": 64},
        {"handle_impossible_answer": True, "top_k": 2, "max_answer_len": 3},
    ],
    brief={"max_answer_len": 8},
    with_text=with_question,
    text_name="question",
    in_windows=True,
    rows=[with_question(text) for text in (FINE, ODD, "Who sings?")],
    write=write_layoutlm,
)
