"""torch.compile, asked for by `pt2.compile`: never fatal, and paid for at load."""

from __future__ import annotations

import logging

import torch
from transformers import PreTrainedModel

from handlers.sections import Compile

logger = logging.getLogger(__name__)


def compiled(module: PreTrainedModel, options: Compile) -> PreTrainedModel:
    """Return the module with its forward compiled, or as it is when that is not asked or fails.

    Shapes are dynamic unless the YAML says otherwise, so that a new length compiles nothing.
    """
    if not options.enable:
        return module
    eager = module.forward
    try:
        module.forward = torch.compile(
            eager,
            backend=options.backend,
            mode=options.mode,
            dynamic=True if options.dynamic is None else options.dynamic,
            fullgraph=options.fullgraph,
            options=options.options,
        )
        _try_out(module)
    except Exception as error:  # noqa: BLE001
        logger.warning("torch.compile failed (%s); the model runs eagerly", type(error).__name__)
        module.forward = eager
    else:
        logger.info("Compiled model with backend %s, mode %s", options.backend, options.mode)
    return module


@torch.inference_mode()
def _try_out(module: PreTrainedModel) -> None:
    for rows, width in ((2, 8), (3, 17)):
        ids = torch.ones(rows, width, dtype=torch.long, device=module.device)
        module(input_ids=ids, attention_mask=torch.ones_like(ids))
