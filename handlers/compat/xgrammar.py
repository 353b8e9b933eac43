"""The messages of xgrammar, which compiles grammars in openvino-genai."""

from __future__ import annotations

import re

# A warning that a part of a grammar is ignored.
IGNORED = re.compile(r"(?:json_schema|regex)_converter\.cc:\d+: Warning: (.*)")
# Where in the source an error is.
PLACE = re.compile(r"^.*\.cc:\d+: ", re.DOTALL)


def ignored_part(warnings: str) -> str:
    """Return what xgrammar says that it ignores of a grammar; "" if it ignores nothing.

    Breaks when the converters warn in another form.
    """
    found = IGNORED.search(warnings)
    return found[1] if found else ""


def error_reason(message: str) -> str:
    """Return an error without its place in the source of xgrammar.

    Breaks when the place has another form.
    """
    return PLACE.sub("", message)
