"""For each mode: inputs that it answers, parameters that it takes, and inputs that it refuses."""

from __future__ import annotations

from typing import Any

FINE = "A fine film with a great cast, and the music is lovely."
ODD = "The naïve señor's café in Zürich 🎉 opened: unbelievable… 北京是首都!"
LONG = "Nina Vogel sings in Paris; her brother Tom lives in New York. " * 9

INPUTS: dict[str, list[Any]] = {
    "sequence_classification": [FINE, ODD, "dull", LONG, {"text": FINE, "text_pair": ODD}],
    "token_classification": [FINE, ODD, "Ada", LONG],
    "question_answering": [
        {"question": "Who sings?", "context": text} for text in (FINE, ODD, "Ada sings.", LONG)
    ],
    "text_generation": ["Once upon a time", ODD, "Ada", FINE],
}
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "sequence_classification": [{}, {"top_k": None}, {"function_to_apply": "sigmoid"}],
    "token_classification": [
        {"ignore_labels": []},
        {"aggregation_strategy": "simple", "stride": 20},
        {"aggregation_strategy": "first"},
        {"aggregation_strategy": "max"},
    ],
    "question_answering": [
        {},
        {"top_k": 3, "doc_stride": 16, "max_seq_len": 64},
        {"handle_impossible_answer": True, "top_k": 2},
        {"align_to_words": False, "max_answer_len": 3},
    ],
    "text_generation": [
        {"max_new_tokens": 4},
        {"max_new_tokens": 9, "stop": ["e"]},
        {"repetition_penalty": 1.3, "max_new_tokens": 5},
        {"do_sample": True, "seed": 7, "max_new_tokens": 6},
        {"num_beams": 2, "max_new_tokens": 5},
    ],
}
# What each mode calls its text in an error, and how a text is sent to it.
TEXT_NAME = {"question_answering": "context"}


def inputs_of(mode: str, text: Any) -> Any:
    """Return inputs that carry a text to a mode."""
    if mode == "question_answering":
        return {"question": "Who sings?", "context": text}
    return text


def requests_of(mode: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return every input with every set of parameters."""
    return [(inputs, given) for given in PARAMETERS[mode] for inputs in INPUTS[mode]]
