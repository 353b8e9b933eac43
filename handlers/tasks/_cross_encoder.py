"""The activation of a cross-encoder: what turns its logits into scores.

sentence-transformers writes the class of torch to one of three places:

- `activation_fn` of `config_sentence_transformers.json`
- `sentence_transformers: {"activation_fn": …}` of `config.json`
- `sbert_ce_default_activation_function` of `config.json`, before version 4

Without any of them it is the sigmoid for one label, and the identity for several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.quoting import enumerate_names, quote
from handlers.errors import WrongCheckpoint
from handlers.tasks._activations import sigmoid, softmax

Activation = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
FILE = "config_sentence_transformers.json"
# Names are looked up here, and never imported.
ACTIVATIONS: Mapping[str, Activation] = {
    "torch.nn.modules.linear.Identity": np.asarray,
    "torch.nn.modules.activation.Sigmoid": sigmoid,
    "torch.nn.modules.activation.Softmax": softmax,
    "torch.nn.modules.activation.Tanh": np.tanh,
}


def read_activation(checkpoint: Checkpoint) -> Activation:
    """Return the function that turns the logits of a row into scores.

    Raises:
        WrongCheckpoint: the checkpoint names a function that is not known.
    """
    name = _declared(checkpoint)
    if name is None:
        return sigmoid if checkpoint.config.num_labels == 1 else np.asarray
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise WrongCheckpoint(
            "config.json",
            f"has the activation {quote(name)}",
            f"use one of {enumerate_names(ACTIVATIONS)}",
        )
    return ACTIVATIONS[name]


def _declared(checkpoint: Checkpoint) -> Any:
    config = checkpoint.config
    own = getattr(config, "sentence_transformers", None)
    candidates = (
        _of_file(checkpoint),
        own.get("activation_fn") if isinstance(own, Mapping) else None,
        getattr(config, "sbert_ce_default_activation_function", None),
    )
    return next((name for name in candidates if name is not None), None)


def _of_file(checkpoint: Checkpoint) -> Any:
    path = checkpoint.directory / FILE
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("activation_fn")
    except (ValueError, AttributeError):
        raise WrongCheckpoint(FILE, "is damaged", "correct the file or remove it") from None
