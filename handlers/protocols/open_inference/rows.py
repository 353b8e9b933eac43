"""From tensors to requests, one for each row.

Tensors have the names of MLServer's Hugging Face runtime: those of the arguments of a transformers
pipeline. The inputs are one tensor, or one for each of their columns (`question` and `context`,
`text` and `text_pair`); the other tensors are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.config.choices import suggest
from handlers.config.quoting import enumerate_names, shorten
from handlers.errors import BadRequest, RequestError, attempt
from handlers.protocols.items import read_item
from handlers.protocols.open_inference.tensors import BYTES, JSON_TEXTS, Tensor
from handlers.types.model_info import SINGLE_VALUES, Columns, ModelInfo
from handlers.types.request import Request

INPUT_NAMES = ("args", "array_inputs", "text_inputs", "inputs", "text", "image", "input-0")
# Request parameters of the protocol or of its servers, which are not the model's.
PROTOCOL_PARAMETERS = {
    "content_type",
    "headers",
    "binary_data_output",
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
}
TRITON_PREFIX = "triton_"

# Older names of parameters.
PARAMETER_ALIASES = {"topk": "top_k"}


class Rows:
    """The rows of tensors; all have one length, but for those whose value holds for every row."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        parameters: Mapping[str, Any],
        model: ModelInfo,
        *,
        explains: bool,
    ) -> None:
        """Divide the tensors into inputs and parameters.

        Raises:
            BadRequest: the inputs cannot be identified, or the numbers of elements differ.
        """
        self._columns, self._explains = model.input_columns, explains
        self._reads_media = model.reads_media
        schemas = {**model.parameters, **(model.explanation if explains else {})}
        schemas |= {
            old: schemas[name] for old, name in PARAMETER_ALIASES.items() if name in schemas
        }
        self._inputs = _input_tensors(tensors, model.input_columns, schemas)
        self.count = len(self._inputs[0])
        others = [tensor for tensor in tensors.values() if tensor not in self._inputs]
        self._shared = {key: parameters[key] for key in parameters if not _is_of_protocol(key)}
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
        """Return whether a parameter that may be a value or a list is a list of another length."""
        takes_lists = any(each.get("type") == "array" for each in schema.get("anyOf", ()))
        return takes_lists and len(tensor) not in (1, self.count)

    def requests(self) -> list[Request | RequestError]:
        """Return the request of each row, or its error."""
        return [attempt(self._request, number) for number in range(self.count)]

    def _request(self, number: int) -> Request:
        own = {tensor.name: tensor.element(number) for tensor in self._own}
        values = [tensor.element(number, reads_media=self._reads_media) for tensor in self._inputs]
        if len(values) > 1:
            names = (tensor.name for tensor in self._inputs)
            return Request(dict(zip(names, values, strict=True)), {**self._shared, **own}, False)
        inputs, innermost = read_item(values[0], self._columns, "element", explains=self._explains)
        return Request(inputs, {**self._shared, **own, **innermost}, alone=False)

    def _check_counts(self) -> None:
        first = self._inputs[0]
        for tensor in (*self._inputs, *self._own):
            if len(tensor) != self.count:
                raise BadRequest(
                    f"{tensor.title} has {len(tensor)} elements, and {first.title} has {self.count}"
                    "; send as many."
                )


def _input_tensors(
    tensors: Mapping[str, Tensor], columns: Sequence[Columns], parameters: Mapping[str, Any]
) -> list[Tensor]:
    """Return the tensors of the inputs, in the order of the columns."""
    names = _input_names(tensors, columns, parameters)
    unknown = min(tensors.keys() - set(names) - parameters.keys(), default=None)
    if unknown is not None:
        known = [*names, *parameters]
        raise BadRequest(
            f"inputs has the unknown tensor {shorten(unknown)}; {suggest(unknown, known)}"
        )
    for name in names:
        if tensors[name].datatype != BYTES:
            raise BadRequest(
                f"{shorten(name)} has datatype {tensors[name].datatype}, and inputs are texts"
                "; send BYTES."
            )
    return [tensors[name] for name in names]


def _input_names(
    tensors: Mapping[str, Tensor], columns: Sequence[Columns], parameters: Mapping[str, Any]
) -> Sequence[str]:
    several = (names for names in columns if names not in SINGLE_VALUES)
    if matching := [names for names in several if set(names) <= tensors.keys()]:
        return max(matching, key=len)
    others = [name for name in tensors if name not in parameters]
    found = [name for name in INPUT_NAMES if name in others] or others
    is_single = not SINGLE_VALUES.keys().isdisjoint(columns)
    if len(found) == 1 and (is_single or tensors[found[0]].content_type in JSON_TEXTS):
        return found
    known = " or ".join(" and ".join(names) for names in columns)
    raise BadRequest(f"inputs has the tensors {enumerate_names(tensors)}; ask with {known}.")


def _is_of_protocol(name: str) -> bool:
    return name in PROTOCOL_PARAMETERS or name.startswith(TRITON_PREFIX)


def _list(tensor: Tensor) -> list[Any]:
    """Return the elements of a parameter that is a list; in JSON, one element is the whole list."""
    elements = [tensor.element(number) for number in range(len(tensor))]
    return elements[0] if len(elements) == 1 and isinstance(elements[0], list) else elements
