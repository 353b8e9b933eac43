"""The test cases of token classification."""

from tests.modes._cases import FINE, LONG, ODD, ModeCases

CASES = ModeCases(
    inputs=[FINE, ODD, "Ada", LONG],
    parameters=[
        {"ignore_labels": []},
        {"aggregation_strategy": "simple", "stride": 20},
        {"aggregation_strategy": "first"},
        {"aggregation_strategy": "max"},
    ],
    brief={"aggregation_strategy": "simple"},
    labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    tensor="input-0",
)
