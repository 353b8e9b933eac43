"""The test cases of sparse embeddings."""

from tests.modes._cases import FINE, LONG, ODD, ModeCases

CASES = ModeCases(
    inputs=[FINE, ODD, "dull", LONG],
    parameters=[{"top_k": 20}, {"top_k": 3}],
    brief={"top_k": 2},
    accepted=[("prompt", "x" * 100)],
    # A logit of about zero is a weight with the absolute rounding error of the logit.
    config={"num_hidden_layers": 1},
)
