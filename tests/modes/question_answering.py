"""The test cases of question answering."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases

VOICE = {"question": "Who sings?", "context": 'Nina, "the voice", sings\nin Paris.'}


def with_context(text: Any) -> Any:
    return {"question": "Who sings?", "context": text}


INPUTS = [with_context(text) for text in (FINE, ODD, "Ada sings.", LONG)]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[
        {},
        {"top_k": 3, "doc_stride": 16, "max_seq_len": 64},
        {"handle_impossible_answer": True, "top_k": 2},
        {"align_to_words": False, "max_answer_len": 3},
    ],
    brief={"max_answer_len": 8},
    with_text=with_context,
    text_name="context",
    in_windows=True,
    rows=[*INPUTS, VOICE],
)
