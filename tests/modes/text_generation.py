"""The test cases of text generation."""

from tests.modes._cases import FINE, ODD, ModeCases

CASES = ModeCases(
    inputs=["Once upon a time", ODD, "Ada", FINE],
    parameters=[
        {"max_new_tokens": 4},
        {"max_new_tokens": 9, "stop": ["e"]},
        {"repetition_penalty": 1.3, "max_new_tokens": 5},
        {"do_sample": True, "seed": 7, "max_new_tokens": 6},
        {"num_beams": 2, "max_new_tokens": 5},
        {"frequency_penalty": 1.5, "logit_bias": {"5": 4}, "max_new_tokens": 5},
        {"details": True, "top_n_tokens": 2, "max_new_tokens": 5},
    ],
    brief={"max_new_tokens": 4},
    tensor="prompt",
    settings={"max_length": 60},
    accepted=[("stop", "x" * 100), ("logit_bias", {}), ("chat_template_kwargs", {})],
)
