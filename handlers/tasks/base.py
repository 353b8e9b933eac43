"""The interface of a task: parse -> encode -> run -> decode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from typing_extensions import TypedDict

from ..batching.padding import Padding, Tensors
from ..batching.rows import BaseRow, Outputs, RowOutcome, require_outputs
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.checkpoint_files import CONFIG, model_type_in
from ..checkpoints.lora_files import AdapterFolders
from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.probe_inputs import GraphInputs
from ..checkpoints.temperature_scaling import temperature_of, with_temperature
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names, quote
from ..config.model_config import ModelConfig
from ..errors import RequestError, Unprocessable, WrongConfig
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..telemetry.metrics import Meter
from ..types.model_info import Limits, TaskDescription
from ..types.parameters import Parameters
from ..types.request import Request

InputT = TypeVar("InputT")
RowT = TypeVar("RowT", bound=BaseRow)


class Label(TypedDict):
    """One class and how well it fits."""

    label: str
    score: float


class BaseTask(ABC, Generic[InputT, RowT]):
    """A mode: converts requests to rows, and the outputs of a model to results.

    A task uses tokenizers or image processors, labels and shapes; it depends neither on the storage
    of weights nor on HTTP. It declares everything that is particular to its mode. What modes with
    the same kind of rows have in common, how rows share a forward among it, is in a base class of
    theirs, such as :class:`hf_serve.handlers.tasks.bases.text.TextTask`.

    Attributes:
        description: what the task can do; its instance may describe its own checkpoint.
        checkpoint_class: the kind of checkpoint that it reads.
        checkpoint_classes: the kinds of other libraries, by the model type in `config.json`.
        auto_class: name of the transformers auto class whose checkpoints it serves, where there is
            one for all of them; see :meth:`auto_class_for`.
        labels: names of the classes, by class number; empty where there are none.
        explains: whether its results can be explained, where the mode has an explanation target.
        prompts: names of the model's prompts, which a request chooses by `prompt_name`.
        takes_prompts: whether the YAML may have `prompts`.
        categories: the category of moderation that a label stands for; empty where the model does
            not moderate.
        temperature: divides the logits of decisions.
        adapters: the LoRA adapters that requests may choose.
    """

    description: TaskDescription
    checkpoint_class: ClassVar[type[Checkpoint]] = Checkpoint
    checkpoint_classes: ClassVar[Mapping[str, type[Checkpoint]]] = {}
    auto_class: ClassVar[str]
    parameters: ClassVar[type[Parameters]]
    labels: Sequence[str] = ()
    explains: bool = True
    prompts: Sequence[str] = ()
    categories: Mapping[str, str] = {}
    takes_prompts: ClassVar[bool] = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        if settings.prompts and not self.takes_prompts:
            raise WrongConfig(
                "handler.prompts",
                f"is set, and mode {settings.mode} puts no prompts before its texts",
                "leave it out",
            )
        self.checkpoint = checkpoint
        if self.description.has_labels:
            self.labels = checkpoint.labels
        self.settings = settings
        self.adapters = AdapterFolders(checkpoint.directory, settings)
        self.temperature = temperature_of(checkpoint.directory, settings)
        self.defaults = self.parameters.defaults_from(settings.parameters)
        self._default_parameters = self.parameters.of_request(self.defaults, {})

    @classmethod
    def read_checkpoint(cls, directory: Path, settings: HandlerSection) -> Checkpoint:
        """Read the checkpoint in a folder, without its weights.

        Raises:
            WrongCheckpoint: its files are wrong, or the mode does not serve its kind.
        """
        kind = str(model_type_in(directory / CONFIG))
        found = cls.checkpoint_classes.get(kind, cls.checkpoint_class)
        return found.read(directory, settings)

    @classmethod
    def for_config(cls, config: PreTrainedConfig) -> type[BaseTask[Any, Any]]:
        """Return the class of the task for a checkpoint with this config.

        It is another one only where families of a mode have rows of different kinds.
        """
        return cls

    @classmethod
    def for_checkpoint(cls, checkpoint: Checkpoint) -> type[BaseTask[Any, Any]]:
        """Return the class of the task for a checkpoint; by default its config says which."""
        return cls.for_config(checkpoint.config)

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        """Return the name of the transformers auto class of a checkpoint with this config."""
        return cls.auto_class

    def model_spec(self, directory: Path, config: ModelConfig, device: torch.device) -> ModelSpec:
        """Return the specification of the model, which a format loads or exports."""
        description = type(self).description
        return ModelSpec(
            directory,
            self.checkpoint,
            self.auto_class_for(self.checkpoint.config),
            description.outputs,
            config,
            device,
            padding=self.padding if self.packs_rows else None,
            row_kind=description.rows.kind,
            decision_scores=self.decision_scores,
            reduction=self.reduction,
            wrapper=self.wrapper,
        )

    @property
    def packs_rows(self) -> bool:
        """Whether rows are packed, where the format and the model support it."""
        return type(self).description.rows.supports_packing and self.settings.BetterTransformer

    @abstractmethod
    def parse(self, request: Request) -> InputT:
        """Check one request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """

    @abstractmethod
    def encode(self, inputs: Sequence[InputT]) -> Sequence[Sequence[RowT] | RequestError]:
        """Return each input's rows; an input that cannot be encoded becomes its error."""

    @abstractmethod
    def decode(self, item: InputT, rows: Sequence[RowT], outputs: Sequence[Outputs]) -> Any:
        """Return the result of an input, ready for JSON, from its rows and their outputs."""

    @abstractmethod
    def run(
        self, model: Model, rows: Sequence[RowT], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        """Run the rows of a whole batch; returns the outcome of each row in order.

        Rows share a forward only where that changes no outputs: see :class:`Model`. Rows that the
        deadline leaves no time for have an error.
        """

    @abstractmethod
    def collate(self, rows: Sequence[RowT]) -> Tensors:
        """Return rows as one batch of the model."""

    def groups(self, rows: Sequence[RowT]) -> list[Sequence[RowT]]:
        """Return rows in groups that :meth:`collate` takes."""
        return [rows]

    @abstractmethod
    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return batches of rows for warm-up, of the shapes that the YAML declares."""

    @property
    @abstractmethod
    def graph_inputs(self) -> GraphInputs:
        """What an exported graph of the model takes.

        Raises:
            WrongCheckpoint: rows have shapes that no graph takes.
        """

    @property
    @abstractmethod
    def budget(self) -> int:
        """The maximum cost of the rows in one forward, padding included."""

    def forward_budget(self, model: Model) -> int:
        """Return the maximum cost of the rows in one forward of a prediction of a model."""
        return self.budget

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """The limits of one request."""

    def least_rows(self, item: InputT) -> int:
        """Return how many rows an input has at least, which is known before it is encoded."""
        return 1

    def encoding_cost(self, item: InputT) -> int:
        """Return what encoding an input costs beyond its own texts, in characters.

        These are the characters of texts that it repeats; a file costs as much as a long text.
        """
        return 0

    def result_numbers(self, item: InputT, rows: Sequence[RowT]) -> int:
        """Return how many numbers a result has, where each token or pixel has some.

        It is 0 for other modes.
        """
        return 0

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        """Return what is kept of a row's outputs until `decode`.

        A mode whose outputs are large copies the part that it reads, so that the rest is freed
        after each forward.
        """
        return outputs

    def adapter_of(self, item: Any) -> str | None:
        """Return the name of the LoRA adapter that an input chooses; None for the model itself."""
        return item.parameters.adapter_id if self.description.takes_adapters else None

    def with_known_adapter(self, parameters: Parameters) -> Parameters:
        """Return parameters whose LoRA adapter, if they name one, the model has.

        Raises:
            Unprocessable: it has not.
        """
        adapter = getattr(parameters, "adapter_id", None)
        if adapter is None or adapter in self.adapters:
            return parameters
        known = f"this model's adapters are {enumerate_names(self.adapters)}"
        raise Unprocessable(
            f"adapter_id is {quote(adapter)}, and "
            + (known if self.adapters else "this model has no adapters")
            + "; leave it out for the model itself."
        )

    def labels_of(self, adapter: str | None) -> Sequence[str]:
        """Return the names of the classes with a LoRA adapter, which may have others."""
        return self.labels if adapter is None else self.adapters.labels(adapter, self.labels)

    @classmethod
    def example_inputs(cls, text: str) -> Any:
        """Return inputs of the words of a text, for benchmarks and tests.

        Rows have as many tokens as the text's row: each additional special token costs a word.
        """
        return text

    @property
    def reduction(self) -> Callable[[], PoolingHead] | None:
        """Returns what reduces the model's outputs for tokens in its graph; None for no reduction.

        `outputs` then has the name that the reduction writes.
        """
        return None

    @property
    def wrapper(self) -> Callable[[PreTrainedModel], PreTrainedModel] | None:
        """Returns the model that is run in the place of the loaded one; None for itself."""
        return None

    @cached_property
    def padding(self) -> Padding | None:
        """The padding of this checkpoint's rows; None for rows that are not padded."""
        return None

    def set_batching(self, model: Model) -> None:
        """Find out which rows may share a batch, and set it as attributes of the model."""

    def choose_batching(self, model: Model) -> None:
        """Have a model run rows together in the fastest way that the YAML and its outputs allow."""
        self.set_batching(model)

    def run_warmup(self, model: Model, batches: Sequence[list[Any]]) -> None:
        """Run batches of warm-up rows."""
        for batch in batches:
            self.run(model, batch, Meter())

    def reference_rows(self, reference: Model, rows: Sequence[RowT]) -> Sequence[RowT]:
        """Return rows with what the checkpoint in float32 makes of them.

        It is the text of a model that writes: others are compared by the next token after each of
        its tokens.
        """
        return rows

    def outputs_for_comparison(self, model: Model, rows: Sequence[RowT]) -> Sequence[Outputs]:
        """Return the outputs of rows by which a model is compared with its checkpoint.

        Raises:
            RequestError: the first error of a row that did not run.
        """
        return require_outputs(self.run(model, rows, Meter()))

    def decision_scores(self, outputs: Outputs) -> Outputs:
        """Return outputs of a row, or of a batch, whose last axis has the scores of one decision.

        A model is compared with its checkpoint by the highest score along that axis.
        """
        return outputs

    def calibrated(self, probabilities: Sequence[float]) -> list[float]:
        """Return the probabilities of a decision with the temperature of the YAML."""
        return with_temperature(probabilities, self.temperature)

    def read_parameters(self, given: Mapping[str, Any]) -> Any:
        """Return a request's parameters, checked, over the YAML's defaults.

        Raises:
            RequestError: one is wrong, or the model does not have the LoRA adapter.
        """
        if not given:
            return self._default_parameters
        return self.with_known_adapter(self.parameters.of_request(self.defaults, given))
