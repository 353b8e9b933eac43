"""The test cases of the modes of encoder-decoders."""

from tests.modes._cases import FINE, ODD, ModeCases

CASES = ModeCases(
    inputs=["Once upon a time", ODD, "Ada", FINE],
    parameters=[
        {"max_new_tokens": 4},
        {"max_length": 8, "min_length": 6, "num_beams": 1},
        {"max_new_tokens": 9, "stop": ["e"], "num_beams": 1, "no_repeat_ngram_size": 2},
        {"do_sample": True, "seed": 7, "num_beams": 1, "max_new_tokens": 6},
        {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5},
        {"details": True, "top_n_tokens": 2, "num_beams": 1, "max_new_tokens": 5},
    ],
    brief={"max_new_tokens": 4},
    settings={"parameters": {"max_new_tokens": 6}},
    accepted=[("stop", "x" * 100), ("logit_bias", {})],
)
