"""A program that compiles a grammar with a limit of its CPU time and memory, or is killed.

Some schemas take exponential time or memory, and nothing stops llguidance within a process. The
grammar is the input; the arguments are the limits of its parser as JSON, seconds and bytes.
"""

from __future__ import annotations

import json
import math
import re
import resource
import sys

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

# The program needs no model: its tokens are the bytes, and these stand for any special token.
SPECIAL_TOKEN = re.compile(r"<\[(\^?)\d+\]>")


def main(limits: str, seconds: str, memory: str) -> None:
    """Compile the grammar and compute its first tokens."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    # The start of the program, which takes longer on a busy machine, does not count.
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + float(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    lark = SPECIAL_TOKEN.sub(r"<[\g<1>256]>", sys.stdin.read())
    settings = LLParserLimits(**json.loads(limits))
    matcher = LLMatcher(LLTokenizer("byte"), lark, log_level=0, limits=settings)
    if not matcher.is_error():
        matcher.compute_bitmask()


if __name__ == "__main__":
    main(*sys.argv[1:])
