"""For each mode: inputs that it answers, parameters that it takes, and inputs that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.config.choices import save_modes

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
# What the YAML of a format must say beside its name.
FORMAT_KEYS: dict[str, dict[str, Any]] = {
    "neuron": {"batch_size": 4, "max_length": 128},
    "neuronx": {"batch_size": 4, "max_length": 128},
}
# What each mode calls its text in an error, and how a text is sent to it.
TEXT_NAME = {"question_answering": "context"}


def format_params() -> list[Any]:
    """Return every `save_mode` as a test's parameter; OpenVINO's are marked."""
    return [
        pytest.param(name, marks=pytest.mark.openvino) if name == "openvino" else name
        for name in save_modes()
    ]


def keys_of(save_mode: str) -> dict[str, Any]:
    """Return what a YAML says to have a format."""
    return {"save_mode": save_mode, **FORMAT_KEYS.get(save_mode, {})}


def inputs_of(mode: str, text: Any) -> Any:
    """Return inputs that carry a text to a mode."""
    if mode == "question_answering":
        return {"question": "Who sings?", "context": text}
    return text


def requests_of(mode: str) -> list[tuple[Any, dict[str, Any]]]:
    """Return every input with every set of parameters."""
    return [(inputs, given) for given in PARAMETERS[mode] for inputs in INPUTS[mode]]
