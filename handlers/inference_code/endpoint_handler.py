"""Hugging Face's `handler.py`: a class `EndpointHandler` that is called with each body.

https://huggingface.co/docs/inference-endpoints/guides/custom_handler
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from ..config.custom_file import ENDPOINT_HANDLER
from ..tasks.custom_code import call, load_error
from ..types.body import RequestBody, ResponseBody
from .base import InferenceCode

CALL = f"{ENDPOINT_HANDLER}.__call__"


class EndpointHandler(InferenceCode):
    """An instance of the class.

    Raises:
        WrongConfig: its constructor fails.
    """

    kind = ENDPOINT_HANDLER

    def __init__(self, module: ModuleType, path: Path, directory: Path) -> None:
        self.file = path.name
        try:
            self._handler = module.EndpointHandler(str(directory))
        except Exception as error:
            raise load_error(error, path, f"whose {ENDPOINT_HANDLER} fails") from error

    def respond(self, body: RequestBody) -> ResponseBody:
        result = call(self._handler, CALL, self.file, body.decode())
        return self.encoded(result, body.accept, CALL)
