"""The test cases of zero-shot object detection."""

from __future__ import annotations

from tests.modes._cases import ModeCases
from tests.modes.image_classification import drawn_for
from tests.modes.zero_shot_image_classification import INPUTS, LABELS, with_labels
from tests.tiny_multimodal import write_owlv2

CASES = ModeCases(
    inputs=INPUTS,
    parameters=[
        {"threshold": 0.0},
        {"threshold": 0.0, "candidate_labels": ["music", "weather"], "top_k": 3},
        {},
    ],
    brief={"threshold": 0.0, "top_k": 2},
    rows=INPUTS,
    with_text=lambda text: with_labels(drawn_for(text)),
    settings={"parameters": {"candidate_labels": LABELS, "threshold": 0.0}},
    accepted=[("candidate_labels", "x" * 100)],
    write=write_owlv2,
)
