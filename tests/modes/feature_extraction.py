"""The test cases of feature extraction."""

from tests.modes._cases import FINE, LONG, ODD, ModeCases

CASES = ModeCases(
    inputs=[FINE, ODD, "dull", LONG],
    parameters=[{}, {"truncate": True}],
)
