"""torch.compile, asked for by `pt2.compile`: never fatal, and paid for at load."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from handlers.formats.base import Model
from handlers.sections import Compile

logger = logging.getLogger(__name__)


def compiled(forward: Callable[..., Any], options: Compile) -> Callable[..., Any]:
    """Return a forward that is compiled when it is first called.

    Shapes are dynamic unless the YAML says otherwise, so that a new length compiles nothing.
    """
    return torch.compile(
        forward,
        backend=options.backend,
        mode=options.mode,
        dynamic=True if options.dynamic is None else options.dynamic,
        fullgraph=options.fullgraph,
        options=options.options,
    )


def compile_by(run: Callable[[], None], model: Model, options: Compile) -> bool:
    """Compile a model for what is run here and now, and say whether it is.

    One that does not compile, or does not run compiled, runs eagerly.
    """
    try:
        if not model.compile(options):
            return False
        run()
    except Exception as error:  # noqa: BLE001
        logger.warning("torch.compile failed (%s); the model runs eagerly", type(error).__name__)
        model.compile(None)
        return False
    logger.info("Compiled model with backend %s, mode %s", options.backend, options.mode)
    return True
