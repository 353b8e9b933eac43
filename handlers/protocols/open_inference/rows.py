"""From tensors to requests, one for each row.

Tensors have the names that MLServer's Hugging Face runtime gives them: those of the arguments of a
transformers pipeline. What is asked about is in one tensor, or in one for each part of it
(`question` and `context`, `text` and `text_pair`); the others are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.config.choices import suggest
from handlers.errors import BadRequest, RequestError, attempt
from handlers.protocols.items import PLAIN, layouts_of, read_item
from handlers.protocols.open_inference.datatypes import BYTES
from handlers.protocols.open_inference.tensors import JSON_TEXTS, Tensor
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import Request

USUAL = ("args", "array_inputs", "text_inputs", "inputs", "text", "input-0")
# Request parameters that are the protocol's own or its servers', and none of a model.
PROTOCOLS_OWN = {
    "content_type",
    "headers",
    "binary_data_output",
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
}
TRITONS = "triton_"

# Names that parameters had before.
OLD_NAMES = {"topk": "top_k"}


class Rows:
    """The rows that tensors make; all of one length but those that hold for every row."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        parameters: Mapping[str, Any],
        model: ModelInfo,
        *,
        explains: bool,
    ) -> None:
        """Sort the tensors.

        Raises:
            BadRequest: it is not clear which is asked about, or their rows do not fit together.
        """
        self._mode, self._explains = model.mode, explains
        schemas = {**model.parameters, **(model.explanation if explains else {})}
        schemas |= {old: schemas[name] for old, name in OLD_NAMES.items() if name in schemas}
        self._asked = _asked(tensors, model.mode, schemas)
        self.count = len(self._asked[0])
        others = [tensor for tensor in tensors.values() if tensor not in self._asked]
        self._shared = {key: parameters[key] for key in parameters if not _is_protocols_own(key)}
        self._own: list[Tensor] = []
        for tensor in others:
            schema = schemas[tensor.name]
            if schema.get("type") == "array" or self._is_list(tensor, schema):
                self._shared[tensor.name] = _list(tensor)
            elif len(tensor) == 1:
                self._shared[tensor.name] = tensor.element(0)
            else:
                self._own.append(tensor)
        self._check_counts()

    def _is_list(self, tensor: Tensor, schema: Mapping[str, Any]) -> bool:
        """Tell whether what may be a value or a list is a list: it has not one for each row."""
        takes_lists = any(each.get("type") == "array" for each in schema.get("anyOf", ()))
        return takes_lists and len(tensor) not in (1, self.count)

    def requests(self) -> list[Request | RequestError]:
        """Return the request of each row, or why there is none."""
        return [attempt(self._request, number) for number in range(self.count)]

    def _request(self, number: int) -> Request:
        own = {tensor.name: tensor.element(number) for tensor in self._own}
        asked = [tensor.element(number) for tensor in self._asked]
        if len(asked) > 1:
            names = (tensor.name for tensor in self._asked)
            return Request(dict(zip(names, asked, strict=True)), {**self._shared, **own}, False)
        inputs, best = read_item(asked[0], self._mode, "element", explains=self._explains)
        return Request(inputs, {**self._shared, **own, **best}, alone=False)

    def _check_counts(self) -> None:
        first = self._asked[0]
        for tensor in (*self._asked, *self._own):
            if len(tensor) != self.count:
                raise BadRequest(
                    f"{tensor.name} has {len(tensor)} elements, and {first.name} has {self.count}"
                    "; send as many."
                )


def _asked(tensors: Mapping[str, Tensor], mode: str, parameters: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that are asked about, in the order of their names in the mode."""
    names = _names(tensors, mode, parameters)
    if unknown := sorted(tensors.keys() - set(names) - parameters.keys()):
        known = [*names, *parameters]
        raise BadRequest(
            f"inputs has the unknown tensor {unknown[0]}; {suggest(unknown[0], known)}"
        )
    for name in names:
        if tensors[name].datatype != BYTES:
            raise BadRequest(
                f"{name} has datatype {tensors[name].datatype}, and is asked about; send BYTES."
            )
    return [tensors[name] for name in names]


def _names(
    tensors: Mapping[str, Tensor], mode: str, parameters: Mapping[str, Any]
) -> Sequence[str]:
    layouts = layouts_of(mode)
    for layout in layouts:
        if layout != PLAIN and set(layout) <= tensors.keys():
            return layout
    others = [name for name in tensors if name not in parameters]
    found = [name for name in USUAL if name in others] or others
    if len(found) == 1 and (PLAIN in layouts or tensors[found[0]].content_type in JSON_TEXTS):
        return found
    known = " or ".join(" and ".join(layout) for layout in layouts)
    raise BadRequest(f"inputs has the tensors {', '.join(tensors)}; ask with {known}.")


def _is_protocols_own(name: str) -> bool:
    return name in PROTOCOLS_OWN or name.startswith(TRITONS)


def _list(tensor: Tensor) -> list[Any]:
    """Return the elements of a parameter that is a list; in JSON, one element is the whole list."""
    elements = [tensor.element(number) for number in range(len(tensor))]
    return elements[0] if len(elements) == 1 and isinstance(elements[0], list) else elements
