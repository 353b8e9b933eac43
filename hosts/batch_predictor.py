"""An archive's engine for rows of a table: values of a column in, results or errors out.

It imports the handlers of the archive: call `hf_serve.hosts.archives.import_from` first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import RequestError, attempt
from hf_serve.handlers.http.decoding import value_or_text
from hf_serve.handlers.protocols.items import read_item
from hf_serve.hosts.archive_handlers import (
    IS_ITEM,
    TEXT_COLUMN,
    Request,
    load_engine,
    pick_device,
    prepare_process,
)
from hf_serve.hosts.archives import config_file
from hf_serve.hosts.one_process import require_one_process

if TYPE_CHECKING:  # An older archive has no such name.
    from hf_serve.handlers.errors import ErrorBody

    Outcome = tuple[Any, ErrorBody | None]


class BatchPredictor:
    """A loaded archive that predicts rows.

    Args:
        device: where it runs, for example `cpu` or `cuda`; "" for the first GPU, or for the
            processor without one and where the YAML says so.
        parameters: the task's parameters, the same for every row.
    """

    def __init__(self, folder: Path, device: str, parameters: Mapping[str, Any]) -> None:
        prepare_process()
        config = ModelConfig.read(config_file(folder))
        require_one_process(config, folder)
        gpu = {} if config.deviceType == "cpu" else {"gpu_id": 0}
        self._engine = load_engine(folder, config, device or str(pick_device(gpu)))
        info: Any = self._engine.describe()
        # An older archive does not describe its task.
        self._columns = (info.task.wire if hasattr(info, "task") else info).input_columns
        self._parameters = parameters
        self._reads_cells = TEXT_COLUMN not in self._columns

    def predict(self, values: Sequence[Any], *, are_cells: bool = False) -> list[Outcome]:
        """Return a pair for each value: its result and None, or None and the body of its error.

        Args:
            are_cells: whether they are cells of a CSV file, in which objects are JSON.
        """
        read = self._read_cell if are_cells and self._reads_cells else self._read
        requests = [attempt(read, value) for value in values]
        readable = [each for each in requests if isinstance(each, Request)]
        predicted = iter(self._engine.predict(readable))
        outcomes = [next(predicted) if isinstance(each, Request) else each for each in requests]
        return [
            (None, each.body()) if isinstance(each, RequestError) else (each, None)
            for each in outcomes
        ]

    def _read_cell(self, value: Any) -> Request:
        return self._read(value_or_text(value, "The cell"))

    def _read(self, value: Any) -> Request:
        inputs, own = read_item(value, self._columns, "row", explains=False)
        return Request(inputs, {**self._parameters, **own}, **IS_ITEM)
