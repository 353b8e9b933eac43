"""torch.compile, asked for by `pt2.compile`: never fatal, and paid for at load."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from handlers.batching import Batch
from handlers.sections import Compile

logger = logging.getLogger(__name__)


def compiled(
    module: PreTrainedModel, options: Compile, batches: Sequence[Batch]
) -> PreTrainedModel:
    """Return the module with its forward compiled, or as it is when that is not asked or fails.

    Shapes are dynamic unless the YAML says otherwise, so that a new length compiles nothing. The
    batches are what it is compiled for, here and now.
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
        _try_out(module, batches)
    except Exception as error:  # noqa: BLE001
        logger.warning("torch.compile failed (%s); the model runs eagerly", type(error).__name__)
        module.forward = eager
    else:
        logger.info("Compiled model with backend %s, mode %s", options.backend, options.mode)
    return module


@torch.inference_mode()
def _try_out(module: PreTrainedModel, batches: Sequence[Batch]) -> None:
    for batch in batches:
        module(**{name: tensor.to(module.device) for name, tensor in batch.items()})
