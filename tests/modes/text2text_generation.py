"""The test cases of text2text generation."""

from tests.modes._text_to_text import CASES

__all__ = ["CASES"]
