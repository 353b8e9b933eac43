"""The Open Inference Protocol V2 of KServe, Triton and MLServer: tensors in, a tensor out.

Each row of the tensor `output` is the JSON text of its request's result, as MLServer's Hugging Face
runtime has it. `handlers/open_inference/paths.py` has the paths.

TorchServe's own gRPC brings such requests as well, with `ts_open_inference_protocol` switched on.
It writes each element of BYTES as JSON, tells neither status nor header, and an answer of another
shape kills its worker: so there an element is the result itself, and an error is an answer, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.answer import Answer, encode
from handlers.bodies import Post
from handlers.errors import RequestError
from handlers.open_inference.answers import answer_to, as_bytes
from handlers.open_inference.body import LENGTH_OF_JSON, Body, parts_of
from handlers.open_inference.paths import BEGINS, INFER, purpose_of
from handlers.open_inference.rows import Rows
from handlers.open_inference.telling import TELLERS
from handlers.open_inference.tensors import tensors_of
from handlers.protocols.base import ItemProtocol
from handlers.requests import Request


class Protocol(ItemProtocol):
    """One request a row of the tensors, answered as an item of a list is."""

    # Behind those that a path or a content type tells: reading some bodies as JSON would fail.
    rank = 35

    def recognises(self, post: Post) -> bool:
        if _by_torchserves_grpc(post) or BEGINS.match(post.path) or post.header(LENGTH_OF_JSON):
            return True
        content = post.content
        return isinstance(content, dict) and _are_tensors(content.get("inputs"))

    def read(self, post: Post) -> list[Request]:
        return super().read(post) if self._purpose(post) == INFER else []

    def items(self, post: Post) -> list[Request | RequestError]:
        content, behind = parts_of(post)
        body = Body.of(content)
        tensors = tensors_of(body, behind, in_base64=_by_torchserves_grpc(post))
        rows = Rows(tensors, body.parameters or {}, self.model, explains=post.explains)
        self.check_count(rows.count, "inputs")
        return rows.requests()

    def write(self, post: Post, requests: Sequence[Request], outcomes: Sequence[Any]) -> Answer:
        purpose = self._purpose(post)
        if purpose != INFER:
            return Answer(encode(TELLERS[purpose](self.model)))
        return super().write(post, requests, outcomes)

    def reply(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Any:
        body = Body.of(parts_of(post)[0])
        if _by_torchserves_grpc(post):
            return answer_to(body.id or "", self.model, results)
        return answer_to(body.id, self.model, [encode(result).decode() for result in results])

    def lay_out(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Answer:
        in_bytes = post.takes_bytes and not _by_torchserves_grpc(post)
        if not in_bytes or not Body.of(parts_of(post)[0]).wants_bytes:
            return super().lay_out(post, requests, results)
        return as_bytes(self.reply(post, requests, results))

    def complaint(self, error: RequestError) -> Any:
        return {"error": str(error)}

    def refuse(self, post: Post, error: RequestError) -> Answer:
        if not _by_torchserves_grpc(post):
            return super().refuse(post, error)
        reply = answer_to(post.raw.get("id") or "", self.model, [error.body()], name="error")
        return Answer(encode(reply), error.status)

    def _purpose(self, post: Post) -> str:
        return purpose_of(post.path, self.model)


def _by_torchserves_grpc(post: Post) -> bool:
    """Tell whether TorchServe read the tensors: what its other gRPC service brings are bytes."""
    return post.by_grpc and "body" in post.headers and isinstance(post.raw, dict)


def _are_tensors(inputs: Any) -> bool:
    """Tell whether inputs are tensors, also where one lacks what all must have."""
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs):
        return False
    return any({"datatype", "shape"} & each.keys() for each in inputs)
