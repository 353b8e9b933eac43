"""Libraries that write progress bars and reports into a worker's log are asked not to."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger

from transformers.utils import logging


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Keep what exporters say of every traced line out of the report; what fails is raised."""
    silence_libraries()
    for name in ("torch.onnx", "torch.export"):
        getLogger(name).setLevel(ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def silence_libraries() -> None:
    """Keep transformers to errors; TorchServe logs each line that a worker prints."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Of 8-bit weights it says for every matrix of every batch that it casts.
    getLogger("bitsandbytes").setLevel(ERROR)
    for module in ("transformers", "captum"):
        warnings.filterwarnings("ignore", module=module)


def silence_imported() -> None:
    """Keep exporting libraries to errors; each sets its own level when it is imported.

    NNCF must have been the first to ask for its logger, which is of a class of its own.
    """
    for name in ("optimum", "nncf", "openvino"):
        if name in sys.modules:
            getLogger(name).setLevel(ERROR)
