"""The test cases of summarization."""

from tests.modes._text_to_text import CASES

__all__ = ["CASES"]
