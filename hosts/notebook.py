"""Archives and checkpoints in a notebook: plain inputs, and results that a cell shows as HTML.

Archives run with the installed version of `handlers`, so that one process can open several.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from hf_serve.handlers import engine
from hf_serve.handlers.checkpoints.archive_signature import verify
from hf_serve.handlers.checkpoints.placement import pick_device
from hf_serve.handlers.config.messages import quote
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Outcome
from hf_serve.handlers.errors import RequestError, WrongConfig
from hf_serve.handlers.explainers.page import Views, render, target_view
from hf_serve.handlers.inference_code import has_inference_code
from hf_serve.handlers.process.deadline import NO_DEADLINE, Deadline
from hf_serve.handlers.protocols import hugging_face
from hf_serve.handlers.protocols.base import result_or_error_body
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from hf_serve.handlers.worker_start import prepare_process
from hf_serve.hosts.archives import MANIFEST, code_sums, config_file, open_archive

PACKAGE = Path(engine.__file__).parent
# NumPy's kinds of arrays with texts, bytes or objects; an array of numbers is one input.
KINDS_OF_TEXTS = frozenset("OSTU")
# Sequences that are one input.
ONE_INPUT = (str, bytes, bytearray, memoryview)
# Rows of a table, and characters of a cell.
MAX_ROWS, MAX_CELL = 50, 300
FRAME = (
    '<iframe srcdoc="{}" style="width: 100%; height: 26rem; border: 0; resize: vertical"></iframe>'
)


class Result(dict[str, Any]):
    """The result of one input, as JSON has it; a cell shows it as a table."""

    def _repr_html_(self) -> str:
        return _table([self])


class Results(list[Any]):
    """The results of several inputs, or of an input with several; a cell shows them as a table."""

    def _repr_html_(self) -> str:
        return _table(self)


class Explanation(dict[str, Any]):
    """The explanation of one input, as JSON has it; a cell shows its page."""

    views: Views = staticmethod(target_view)

    def page(self) -> bytes:
        """Return the explanation as an HTML page."""
        return render([self], self.views)

    def _repr_html_(self) -> str:
        return _frame([self], self.views)


class Explanations(list[Any]):
    """The explanations of several inputs; a cell shows them on one page."""

    views: Views = staticmethod(target_view)

    def _repr_html_(self) -> str:
        return _frame(self, self.views)


class Engine(engine.Engine):
    """A model that a notebook asks.

    engine = Engine.load("sentiment.mar")
    engine.predict("I like it")
    engine.predict(["I like it", "I do not"], top_k=1)
    engine.explain("I like it")
    """

    @classmethod
    def load(
        cls,
        directory: Path | str,
        config: ModelConfig | None = None,
        device: torch.device | str = "",
        sums: Mapping[str, str] | None = None,
        *,
        mode: str | None = None,
    ) -> Engine:
        """Load an archive, packed or unpacked, or the checkpoint in a folder.

        Args:
            directory: a `.mar`, a `.tar.gz` or a folder.
            config: the settings; by default the archive's own.
            device: where the model runs; by default the first GPU where there is one.
            mode: the mode of a checkpoint, in the place of `config`. An archive has its own.

        Raises:
            ArchiveError: the file is no archive.
            ConfigError: the archive was changed, or its model does not load.
        """
        prepare_process()
        path = Path(directory).expanduser()
        if not path.exists():
            raise WrongConfig(
                str(directory),
                "there is no such file or folder",
                "correct the path; a model of the hub is downloaded and packed by `hf-serve run`",
            )
        if path.suffix in (".yaml", ".yml"):
            raise WrongConfig(
                str(directory), "is a YAML", "pack it with `hf-serve pack`, and name the archive"
            )
        if isinstance(config, str):
            raise WrongConfig(config, "is no ModelConfig", f'name a mode as mode="{config:.40}"')
        if config is not None and mode is not None:
            raise WrongConfig("mode", f"is {quote(mode)}, and config has its own", "leave one out")
        if path.is_file() or (path / MANIFEST).is_file():
            path = open_archive(path).folder
            sums = verify(path)
            _warn_of_other_code(path, directory)
            if mode is not None:
                _check_mode(path, mode, directory)
        elif mode is not None:
            config = ModelConfig.parse({"handler": {"mode": mode}})
        elif config is None:
            raise WrongConfig(
                str(directory),
                "is a folder of which the mode is not known",
                'pass mode="…" for a checkpoint, which `hf-serve check` says, or name an archive',
            )
        config = config or ModelConfig.read(config_file(path))
        if has_inference_code(path, config):
            raise WrongConfig(
                "handler.custom",
                f"is {config.handler.custom}, which answers whole requests of HTTP",
                "serve the model and send it requests",
            )
        gpu = {} if config.deviceType == "cpu" else {"gpu_id": 0}
        loaded = super().load(path, config, _device(device) or pick_device(gpu), sums)
        loaded.require_health()
        return loaded  # type: ignore[return-value]  # it is of this class

    def predict(
        self,
        requests: Any,
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
        **parameters: Any,
    ) -> Any:
        """Return the result of an input, or a list of results for a list of inputs.

        Args:
            requests: a text, an image, the path or the bytes of a file, an object as the body of a
                request has it in `inputs`, or a list of them. :class:`Request` objects are taken as
                they are.
            parameters: the parameters of the mode.

        Raises:
            RequestError: the only input is refused. In a list, an error is in the place of its
                result.
        """
        if _are_requests(requests):
            return super().predict(requests, meter, deadline, http_request_ids)
        made = self._requests(requests, parameters)
        outcomes = super().predict(made, meter, deadline)
        if made[0].is_batch_item:
            return Results(map(_result, outcomes))
        return _result(_only(outcomes))

    def explain(
        self,
        requests: Any,
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
        **parameters: Any,
    ) -> Any:
        """Return the explanation of an input, or a list of them for a list of inputs.

        It takes the arguments of :meth:`predict`; `target` and `method` are parameters, too.
        """
        if _are_requests(requests):
            return super().explain(requests, meter, deadline, http_request_ids)
        made = self._requests(requests, parameters)
        outcomes = super().explain(made, meter, deadline)
        is_list = made[0].is_batch_item
        found = Explanations(outcomes) if is_list else Explanation(_only(outcomes))
        found.views = self._description.explanation_views or target_view
        return found

    @cached_property
    def _description(self) -> Any:
        return self.describe()

    @cached_property
    def _protocol(self) -> hugging_face.Protocol:
        return hugging_face.Protocol(self._description)

    def _requests(self, inputs: Any, parameters: Mapping[str, Any]) -> list[Request]:
        """Return a request for each item of a list, or one request for other inputs."""
        if (items := _items(inputs)) is not None:
            return self._protocol.requests([_readable(each) for each in items], parameters)
        return self._protocol.requests(_readable(inputs), parameters)


def _are_requests(inputs: Any) -> bool:
    return isinstance(inputs, (list, tuple)) and all(isinstance(each, Request) for each in inputs)


def _items(inputs: Any) -> list[Any] | None:
    """Return the items of a list, of a column of pandas or datasets, or of an array of texts.

    None is for one input.
    """
    if getattr(inputs, "ndim", 0) == 1 and _kind(inputs) in KINDS_OF_TEXTS:
        return list(inputs.tolist())
    is_list = isinstance(inputs, Sequence) and not isinstance(inputs, ONE_INPUT)
    return [*inputs] if is_list else None


def _kind(array: Any) -> str | None:
    return getattr(getattr(array, "dtype", None), "kind", None)


def _device(device: torch.device | str) -> torch.device | None:
    """Return a device of this machine; None for the default.

    Raises:
        WrongConfig: torch has no such device here.
    """
    if device in ("", None):
        return None
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, ImportError, TypeError):
        raise WrongConfig(
            "device",
            f"is {quote(str(device))}, which torch does not have here",
            "leave it out, or name another one",
        ) from None


def _check_mode(folder: Path, mode: str, name: Path | str) -> None:
    """Check that the mode of an archive is the one that is asked for.

    Raises:
        WrongConfig: it is another one.
    """
    own = ModelConfig.read(config_file(folder)).handler.mode
    if mode != own:
        raise WrongConfig(
            "mode",
            f"is {quote(mode)}, and {name} is an archive of {own}",
            "leave it out, or load the folder of the checkpoint",
        )


def _readable(value: Any) -> Any:
    """Return the bytes of a file or an image, as a request can have them."""
    if isinstance(value, Path):
        return value.read_bytes()
    if not isinstance(value, Image.Image):
        return value
    stream = BytesIO()
    value.save(stream, "PNG")
    return stream.getvalue()


def _only(outcomes: Sequence[Outcome]) -> Any:
    """Return the only outcome.

    Raises:
        RequestError: it is one.
    """
    (outcome,) = outcomes
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome


def _result(outcome: Any) -> Any:
    if isinstance(outcome, dict):
        return Result(outcome)
    return Results(outcome) if isinstance(outcome, list) else outcome


def _warn_of_other_code(folder: Path, name: Path | str) -> None:
    if code_sums(folder / "handlers") != code_sums(PACKAGE):
        warnings.warn(
            f"{quote(str(name))} was packed with another version of the kit, and runs with the"
            " installed one; pack it again if its results differ.",
            stacklevel=3,
        )


def _frame(explanations: Sequence[Any], views: Views) -> str:
    page = render([result_or_error_body(each) for each in explanations], views)
    return FRAME.format(escape(page.decode()))


def _table(results: Sequence[Any]) -> str:
    """Return a table of results: a row for each, and a column for each of their keys."""
    rows = [_row(each) for each in results[:MAX_ROWS]]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(key)}</th>" for key in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row.get(key, ''))}</td>" for key in columns) + "</tr>"
        for row in rows
    )
    more = len(results) - len(rows)
    end = f"<p>and {more:,} more</p>" if more else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{end}"


def _row(result: Any) -> dict[str, Any]:
    if isinstance(result, RequestError):
        return {"error": str(result)}
    best = result[0] if isinstance(result, list) and len(result) == 1 else result
    return best if isinstance(best, dict) else {"result": best}


def _cell(value: Any) -> str:
    """Return a value as HTML: long ones are cut."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return escape(text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…")
