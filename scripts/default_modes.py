"""The modes that a command takes when it is given none.

A worker takes about 500 MB of memory, and a demo model up to minutes of training, so the commands
take some modes; any other one is taken when it is named.
"""

from __future__ import annotations

from hf_serve.handlers.config.handler_section import modes

DEFAULT = (
    "question_answering",
    "sentence_embedding",
    "sequence_classification",
    "text_generation",
    "token_classification",
)


def default_modes() -> list[str]:
    """Return the modes that `make demo`, `make serve` and `make archives` take without `MODES`."""
    return [mode for mode in modes() if mode in DEFAULT]


if __name__ == "__main__":
    print(*default_modes())  # noqa: T201 - the Makefile reads it
