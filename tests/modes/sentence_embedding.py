"""The test cases of sentence embeddings."""

from tests.modes._cases import FINE, LONG, ODD, ModeCases

CASES = ModeCases(
    inputs=[FINE, ODD, "dull", LONG],
    parameters=[
        {},
        {"dimensions": 8, "normalize": True},
        {"prompt": "A text: ", "truncation_direction": "left"},
        {"precision": "ubinary", "encoding_format": "base64"},
    ],
    brief={"dimensions": 3},
    accepted=[("prompt", "x" * 100)],
)
