"""The test cases of sequence classification."""

from tests.modes._cases import FINE, LONG, ODD, ModeCases

CASES = ModeCases(
    inputs=[FINE, ODD, "dull", LONG, {"text": FINE, "text_pair": ODD}],
    parameters=[{}, {"top_k": None}, {"function_to_apply": "sigmoid"}],
    brief={"top_k": 2},
    labels=("NEGATIVE", "NEUTRAL", "POSITIVE"),
    rows=[FINE, {"text": FINE, "text_pair": ODD}, "dull"],
)
