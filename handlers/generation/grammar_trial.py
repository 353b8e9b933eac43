"""A program that compiles grammars with a limit of its CPU time and memory, or is killed.

Some schemas take exponential time or memory, and nothing stops llguidance within a process. The
input is a JSON list of grammars; the arguments are the file of llguidance's compiled module, the
limits of its parser as JSON, seconds and bytes. The output has a line for each grammar that was
tried: 1 if it is compiled, 0 if it is wrong.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType

# The program needs no model: its tokens are the bytes, and these stand for any special token.
SPECIAL_TOKEN = re.compile(r"<\[(\^?)\d+\]>")


def main(module: str, limits: str, seconds: str, memory: str) -> None:
    """Compile the grammars and compute their first tokens."""
    llguidance = load(module)
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    # The CPU time of the start, which takes longer on a busy machine, does not count.
    signal.setitimer(signal.ITIMER_PROF, float(seconds))
    vocabulary = llguidance.LLTokenizer("byte")
    settings = llguidance.LLParserLimits(**json.loads(limits))
    for lark in json.load(sys.stdin):
        plain = SPECIAL_TOKEN.sub(r"<[\g<1>256]>", lark)
        matcher = llguidance.LLMatcher(vocabulary, plain, log_level=0, limits=settings)
        if not matcher.is_error():
            matcher.compute_bitmask()
        sys.stdout.write("0\n" if matcher.is_error() else "1\n")
        sys.stdout.flush()


def load(path: str) -> ModuleType:
    """Import llguidance's compiled module without the package, which takes much longer."""
    loader = ExtensionFileLoader("llguidance._lib", path)
    module = module_from_spec(ModuleSpec(loader.name, loader, origin=path))
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
