"""Libraries that write progress bars and reports into a worker's log are asked not to."""

from __future__ import annotations

import warnings

from transformers.utils import logging


def quieten() -> None:
    """Keep transformers to errors; TorchServe logs each line that a worker prints."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for module in ("transformers", "captum"):
        warnings.filterwarnings("ignore", module=module)
