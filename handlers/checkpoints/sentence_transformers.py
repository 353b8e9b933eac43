"""The files of sentence-transformers in a checkpoint: modules, pooling, prompts and limits.

    modules.json                         the modules in their order, and their folders
    1_Pooling/config.json                how vectors of tokens become one vector of the text
    2_Dense/config.json, model.safetensors
    sentence_bert_config.json            max_seq_length, do_lower_case, and how texts are read
    config_sentence_transformers.json    prompts, default_prompt_name, similarity_fn_name,
                                         truncate_dim

A checkpoint without modules.json has the mean of its tokens' vectors, or the vector of the last
token of a causal language model, not normalized, as sentence-transformers loads it. Source of the
formats: the `save` methods of the modules of sentence-transformers 2.0 to 6.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)
from safetensors.torch import load_file

from ..errors import WrongCheckpoint, summarize
from .checkpoint_files import STATIC as STATIC_TYPE
from .checkpoint_files import static_folder
from .pooling import PoolingHead, TextSlots

MODULES = "modules.json"
CONFIG = "config.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
SETTINGS = "config_sentence_transformers.json"
BERT_CONFIG = "sentence_bert_config.json"
# Earlier versions named the file after the family.
LIMITS = re.compile(r"sentence_[a-z-]+_config\.json")
# An input of a row: 1 for tokens that are not pooled, of a prompt or unknown to model2vec.
PROMPT_MASK = "prompt_mask"
OUTPUT = "sentence_embedding"
FIRST = ("Transformer", "Pooling")
# The packages of modules; modules of others are code of a repository.
PACKAGES = ("sentence_transformers", "pylate")
STATIC = STATIC_TYPE.removeprefix(".")
SPLADE = "SpladePooling"
SPLADE_MODULES = ("MLMTransformer", "Transformer", SPLADE)

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
MAX_SIMILARITY = "maxsim"
# How a model reads texts that become vectors, or weights of the vocabulary.
FORWARD = "forward"
TASK, STATES = "feature-extraction", "last_hidden_state"
MASKED_TASK, LOGITS = "fill-mask", "logits"

# The keys of versions before 5.4, in the order in which their vectors are concatenated.
POOLING_KEYS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

ModelT = TypeVar("ModelT", bound=BaseModel)

ACTIVATIONS: dict[str, type[torch.nn.Module]] = {
    each.__name__: each
    for each in (
        torch.nn.Identity,
        torch.nn.Tanh,
        torch.nn.ReLU,
        torch.nn.GELU,
        torch.nn.SiLU,
        torch.nn.Sigmoid,
    )
}


class PoolingConfig(BaseModel):
    """The config of the pooling; versions before 5.4 have one key for each mode."""

    pooling_mode: PoolingMode | list[PoolingMode] | None = None
    include_prompt: bool = True
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False

    @property
    def modes(self) -> list[PoolingMode]:
        """The modes whose vectors are concatenated."""
        if self.pooling_mode:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        return [mode for key, mode in POOLING_KEYS.items() if getattr(self, key)] or ["mean"]


class Limits(BaseModel):
    """sentence_bert_config.json."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool = False

    @classmethod
    def read(cls, directory: Path) -> Limits:
        """Return the limits of a checkpoint; without the file, none.

        Raises:
            WrongCheckpoint: the file is damaged.
        """
        found = sorted(path for path in directory.glob("*.json") if LIMITS.fullmatch(path.name))
        return read_model(found[0], Limits) if found else cls()


class Modality(BaseModel):
    """How one kind of inputs is read."""

    format: Literal["structured", "flat"] = "flat"
    method: str = FORWARD
    method_output_name: str | None = None


class TextArguments(BaseModel):
    """Arguments of the tokenizer; others would change what is read."""

    model_config = ConfigDict(extra="forbid")

    max_length: PositiveInt | None = None
    padding: Any = None
    truncation: Literal[True, "longest_first"] | None = None


class ProcessingArguments(BaseModel):
    """Arguments of the tokenizer and of the chat template."""

    model_config = ConfigDict(extra="forbid")

    text: TextArguments = TextArguments()
    chat_template: dict[str, Any] = Field(default_factory=dict)


class TransformerConfig(BaseModel):
    """How the model reads its inputs, in sentence_bert_config.json since version 5.4."""

    transformer_task: str | None = None
    modality_config: dict[str, Modality] = Field(default_factory=dict)
    processing_kwargs: ProcessingArguments = ProcessingArguments()

    @classmethod
    def of_texts(cls, directory: Path, task: str, output: str) -> TransformerConfig:
        """Return the config of a checkpoint whose plain texts become vectors.

        Args:
            task: what sentence-transformers calls the model.
            output: the output of the model that is pooled.

        Raises:
            WrongCheckpoint: the file is damaged, or texts are read in another way.
        """
        config = read_model(directory / BERT_CONFIG, cls, optional=True)
        if config.transformer_task not in (None, task):
            raise WrongCheckpoint(
                BERT_CONFIG,
                f"has transformer_task {config.transformer_task:.80}",
                f"use a checkpoint with the task {task}",
            )
        if "message" in config.modality_config:
            raise WrongCheckpoint(
                BERT_CONFIG,
                "has the modality message, so that its texts are read in a chat template",
                "use a checkpoint that was trained on plain texts; if this one was, remove message"
                " from its modality_config",
            )
        text = config.modality_config.get("text", Modality())
        if (text.method, text.method_output_name or output) != (FORWARD, output):
            raise WrongCheckpoint(
                BERT_CONFIG,
                f"reads texts with {text.method} and takes {text.method_output_name or 'it'}",
                f"use a checkpoint whose texts become the {output} of {FORWARD}",
            )
        return config


def read_prompts(prompts: Any) -> Any:
    """Return the prompts of a file, whose null is an empty text."""
    if not isinstance(prompts, dict):
        return prompts
    return {name: "" if text is None else text for name, text in prompts.items()}


def _of_one_vector(name: Any) -> Any:
    """Return a similarity of single vectors; `maxsim` compares several of each text."""
    return None if name == MAX_SIMILARITY else name


PromptTexts = Annotated[dict[str, str], BeforeValidator(read_prompts)]


class Settings(BaseModel):
    """config_sentence_transformers.json.

    Attributes:
        truncate_dim: the dimensions of each vector that are kept; None for all of them.
        max_active_dims: the weights of a sparse vector that are kept; None for all of them.
    """

    prompts: PromptTexts = Field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: Annotated[Similarity | None, BeforeValidator(_of_one_vector)] = None
    truncate_dim: PositiveInt | None = None
    max_active_dims: PositiveInt | None = None

    @classmethod
    def read(cls, directory: Path) -> Settings:
        """Return the settings of a checkpoint; without the file, the defaults.

        Raises:
            WrongCheckpoint: the file is damaged, or its default prompt is none of its prompts.
        """
        settings = read_model(directory / SETTINGS, cls, optional=True)
        _check_default_prompt(settings)
        return settings


@dataclass(frozen=True)
class SentenceTransformer:
    """The modules of a checkpoint behind its model, without their weights.

    Attributes:
        normalizes: whether the vectors have a length of 1 at the end.
        limits: whether a text is read in lower case.
        max_length: the maximum number of tokens of a text, if a file has one.
        settings: the prompts, and how vectors are compared.
    """

    directory: Path
    pooling: PoolingConfig
    layers: tuple[ModuleEntry, ...]
    normalizes: bool
    dimension: int
    limits: Limits
    max_length: int | None
    settings: Settings

    @classmethod
    def read(cls, directory: Path, hidden_size: int) -> SentenceTransformer:
        """Read the files of a checkpoint.

        Raises:
            WrongCheckpoint: a file is damaged, or a module is not supported.
        """
        is_static = static_folder(directory) is not None
        first = [STATIC] if is_static else FIRST
        modules = read_modules(directory, first) if has_modules(directory) else []
        layers = modules if is_static else modules[1:]
        config = PoolingConfig()
        if modules and not is_static:
            config = read_model(directory / modules[0].path / CONFIG, PoolingConfig)
        normalizes = bool(layers and layers[-1].kind == "Normalize")
        behind = tuple(layers[:-1] if normalizes else layers)
        dimension = layers_dimension(directory, hidden_size * len(config.modes), behind)
        for each in behind:
            _check_names(directory, each)
        reading = TransformerConfig.of_texts(directory, TASK, STATES)
        limits = Limits.read(directory)
        return cls(
            directory,
            config,
            behind,
            normalizes,
            dimension,
            limits,
            reading.processing_kwargs.text.max_length or limits.max_seq_length,
            Settings.read(directory),
        )

    def reduction(self) -> SentencePooling:
        """Return the pooling and the modules behind it, with their weights.

        Raises:
            WrongCheckpoint: weights are missing or do not fit.
        """
        return SentencePooling(self.pooling, load_layers(self.directory, self.layers))


class SentencePooling(PoolingHead):
    """Makes one vector of each text from the vectors of its tokens, in float32.

    The vectors are not normalized at the end, so that they can be truncated before.
    """

    writes = OUTPUT

    def __init__(self, config: PoolingConfig, layers: Sequence[torch.nn.Module] = ()) -> None:
        super().__init__()
        self.modes = config.modes
        self.inputs = () if config.include_prompt else (PROMPT_MASK,)
        self.layers = torch.nn.Sequential(*layers)

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        pooled_slots = slots.without(inputs[PROMPT_MASK]) if inputs else slots
        positions = slots.positions if "weightedmean" in self.modes else None
        vectors = [self._pool(mode, values.float(), pooled_slots, positions) for mode in self.modes]
        vector: torch.Tensor = self.layers(torch.cat(vectors, -1))
        return vector

    def _pool(
        self,
        mode: PoolingMode,
        values: torch.Tensor,
        slots: TextSlots,
        positions: torch.Tensor | None,
    ) -> torch.Tensor:
        if mode == "cls":
            return slots.first(values)
        if mode == "lasttoken":
            return slots.last(values)
        if mode == "max":
            return slots.maximum(values)
        if positions is not None and mode == "weightedmean":
            weights = (slots.members * positions).sum(1, keepdim=True).clamp(min=1)
            return slots.sum(values, positions) / weights.to(values.dtype)
        lengths = slots.lengths.to(values.dtype)
        return slots.sum(values) / (lengths if mode == "mean" else lengths.sqrt())


def _check_names(directory: Path, entry: ModuleEntry) -> None:
    """Check that a dense layer reads and writes the vector of the text.

    Raises:
        WrongCheckpoint: it reads or writes something else.
    """
    if entry.kind != "Dense":
        return
    config = read_model(directory / entry.path / CONFIG, DenseConfig)
    if other := {config.module_input_name, config.module_output_name or OUTPUT} - {OUTPUT}:
        raise WrongCheckpoint(
            f"{entry.path}/{CONFIG}",
            f"reads or writes {min(other):.80}, and not {OUTPUT}",
            "use a checkpoint whose dense layers follow each other behind the pooling",
        )


def _check_default_prompt(settings: Settings) -> None:
    name = settings.default_prompt_name
    if name is not None and name not in settings.prompts:
        raise WrongCheckpoint(
            SETTINGS,
            f"has default_prompt_name {name:.80}, which is not one of its prompts",
            "add the prompt or remove the name",
        )


class SpladeConfig(BaseModel):
    """The config of SPLADE's pooling.

    Attributes:
        pooling_strategy: what becomes of the weights of a text's tokens.
        activation_function: `log1p_relu` takes the logarithm twice.
    """

    pooling_strategy: Literal["max", "sum"] = "max"
    activation_function: Literal["relu", "log1p_relu"] = "relu"

    @classmethod
    def read(cls, directory: Path) -> SpladeConfig:
        """Read the config of a checkpoint; without the module, it is the default.

        Raises:
            WrongCheckpoint: a file is damaged, or there is a module that is not supported.
        """
        entries = module_entries(directory) if has_modules(directory) else []
        unknown = next((each.kind for each in entries if each.kind not in SPLADE_MODULES), None)
        if unknown is not None:
            raise _unsupported(unknown, ("Transformer", SPLADE))
        pooling = next((each for each in entries if each.kind == SPLADE), None)
        return read_model(directory / pooling.path / CONFIG, cls) if pooling else cls()


class SpladePooling(PoolingHead):
    """One weight for each entry of the vocabulary: log(1 + relu(logit)), over the tokens."""

    reads = "logits"
    writes = "sparse_embedding"

    def __init__(self, config: SpladeConfig) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if self.config.pooling_strategy == "sum":
            return slots.sum(self._weights(values))
        # Weights grow with logits, so the largest logits have the largest weights.
        return self._weights(slots.maximum(values))

    def _weights(self, logits: torch.Tensor) -> torch.Tensor:
        weights = torch.log1p(torch.relu(logits.float()))
        return torch.log1p(weights) if self.config.activation_function != "relu" else weights


class ModuleEntry(BaseModel):
    """An entry of modules.json; the last word of `type` is the class of the module."""

    path: str = Field(pattern=r"^(\.|[A-Za-z0-9_-]*)$")
    type: str

    @property
    def kind(self) -> str:
        """The name of the class."""
        return self.type.rpartition(".")[2]


class DenseConfig(BaseModel):
    """The config of a dense layer; `activation_function` is the path of a class of torch."""

    in_features: PositiveInt
    out_features: PositiveInt
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    use_residual: bool = False
    module_input_name: str = "sentence_embedding"
    module_output_name: str | None = None


class LayerNormConfig(BaseModel):
    """The config of a layer normalization."""

    dimension: PositiveInt

    @property
    def in_features(self) -> int:
        """The size of the vectors that it takes."""
        return self.dimension

    @property
    def out_features(self) -> int:
        """The size of the vectors that it returns."""
        return self.dimension


# The configs of the layers that take vectors of one size.
SIZED: dict[str, type[DenseConfig | LayerNormConfig]] = {
    "Dense": DenseConfig,
    "LayerNorm": LayerNormConfig,
}


class _Normalize(torch.nn.Module):
    """Vectors of length 1."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors, dim=-1)


class _Dense(torch.nn.Module):
    """A dense layer; what it takes is added to the result where it has a residual."""

    def __init__(self, config: DenseConfig, activation: torch.nn.Module) -> None:
        super().__init__()
        sizes = config.in_features, config.out_features
        self.linear = torch.nn.Linear(*sizes, bias=config.bias)
        self.activation = activation
        self.residual: torch.nn.Module | None = None
        if config.use_residual:
            same = config.in_features == config.out_features
            self.residual = torch.nn.Identity() if same else torch.nn.Linear(*sizes, bias=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.activation(self.linear(vectors))
        return found if self.residual is None else found + self.residual(vectors)


def _dense(folder: Path) -> torch.nn.Module:
    config = read_model(folder / CONFIG, DenseConfig)
    dense = _Dense(config, _activation(config, folder.name)())
    _load_weights(dense, folder)
    return dense


def _activation(config: DenseConfig, folder: str) -> type[torch.nn.Module]:
    """Return the class of the activation function of a dense layer.

    Raises:
        WrongCheckpoint: it is none that this kit computes.
    """
    name = config.activation_function.rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise WrongCheckpoint(
            f"{folder}/{CONFIG}",
            f"names the activation function {config.activation_function:.80}",
            f"use one of {', '.join(ACTIVATIONS)} of torch.nn",
        )
    return ACTIVATIONS[name]


def _layer_norm(folder: Path) -> torch.nn.Module:
    norm = torch.nn.LayerNorm(read_model(folder / CONFIG, LayerNormConfig).dimension)
    _load_weights(torch.nn.ModuleDict({"norm": norm}), folder)
    return norm


# The modules that may follow the pooling. Dropout does nothing when a model is served.
LAYERS: dict[str, Any] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": lambda _folder: _Normalize(),
    "Dropout": lambda _folder: torch.nn.Identity(),
}


def read_modules(directory: Path, first: Sequence[str]) -> list[ModuleEntry]:
    """Return the entries of modules.json behind the model, which is the first entry.

    Args:
        directory: the checkpoint, which has the file.
        first: the classes of the first modules; all others are layers.

    Raises:
        WrongCheckpoint: a module is not supported, or they are in another order.
    """
    entries = module_entries(directory)
    kinds = [each.kind for each in entries]
    if unknown := sorted(set(kinds) - {*first, *LAYERS}):
        raise _unsupported(unknown[0], [*first, *LAYERS])
    if kinds[: len(first)] != [*first] or not {*first}.isdisjoint(kinds[len(first) :]):
        raise WrongCheckpoint(
            MODULES,
            f"has the modules {', '.join(kinds)[:80] or 'of an empty list'}",
            f"use a checkpoint of one {', one '.join(first)}, and other modules behind them",
        )
    if entries[0].path and first[0] != STATIC:
        raise WrongCheckpoint(
            MODULES,
            f"has its model in the folder {entries[0].path:.80}",
            "move the files of that folder beside modules.json, and make its path empty",
        )
    return list(entries[1:])


def has_modules(directory: Path) -> bool:
    """Return whether a checkpoint names its modules."""
    return (directory / MODULES).is_file()


def module_kinds(directory: Path) -> list[str]:
    """Return the classes of the modules of a checkpoint; none without modules.json.

    Raises:
        WrongCheckpoint: the file is damaged.
    """
    return [each.kind for each in module_entries(directory)] if has_modules(directory) else []


def module_entries(directory: Path) -> list[ModuleEntry]:
    """Return all entries of modules.json.

    Raises:
        WrongCheckpoint: the file is damaged.
    """
    entries: list[ModuleEntry] = _read(
        directory / MODULES, TypeAdapter(list[ModuleEntry]).validate_json
    )
    own = next((each.type for each in entries if not each.type.startswith(PACKAGES)), None)
    if own is not None:
        raise WrongCheckpoint(
            MODULES,
            f"names the module {own:.80} of the repository's own code, which this kit never runs",
            f"use a checkpoint whose modules are classes of {PACKAGES[0]}",
        )
    return entries


def is_router(directory: Path) -> bool:
    """Return whether modules.json has a router alone.

    Raises:
        WrongCheckpoint: the file is damaged.
    """
    return [each.kind for each in module_entries(directory)] == ["Router"]


def _unsupported(module: str, supported: Sequence[str]) -> WrongCheckpoint:
    return WrongCheckpoint(
        MODULES,
        f"has a module {module:.80}, which this mode does not support",
        f"use a checkpoint of {', '.join(supported)}",
    )


def load_layers(directory: Path, entries: Sequence[ModuleEntry]) -> list[torch.nn.Module]:
    """Return the layers that entries name, with their weights.

    Raises:
        WrongCheckpoint: weights are missing or do not fit.
    """
    return [LAYERS[each.kind](directory / each.path) for each in entries]


def layers_dimension(directory: Path, size: int, layers: Sequence[ModuleEntry]) -> int:
    """Return the size of the vectors behind the layers.

    Raises:
        WrongCheckpoint: a layer takes vectors of another size, or has an unknown activation.
    """
    for each in layers:
        if each.kind in SIZED:
            config = read_model(directory / each.path / CONFIG, SIZED[each.kind])
            if config.in_features != size:
                raise WrongCheckpoint(
                    f"{each.path}/{CONFIG}",
                    f"takes vectors of {config.in_features} numbers, and gets {size}",
                    "use a checkpoint whose modules fit each other",
                )
            if isinstance(config, DenseConfig):
                _activation(config, each.path)
            size = config.out_features
    return size


def read_model(path: Path, model: type[ModelT], *, optional: bool = False) -> ModelT:
    """Return a file of JSON as a model of pydantic; one that is optional has defaults.

    Raises:
        WrongCheckpoint: it is missing or damaged.
    """
    if optional and not path.is_file():
        return model()
    return _read(path, model.model_validate_json)


def _read(path: Path, parse: Any) -> Any:
    """Parse a file.

    Raises:
        WrongCheckpoint: it is missing or damaged.
    """
    name = path.name if path.name != CONFIG else f"{path.parent.name}/{CONFIG}"
    try:
        return parse(path.read_bytes())
    except OSError:
        problem, remedy = "is missing", f"pack the file, or remove {MODULES}"
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        problem = f"is not understood ({key + ': ' if key else ''}{first['msg']:.150})"
        remedy = "pack the file as sentence-transformers has saved it"
    raise WrongCheckpoint(name, problem, remedy)


def _load_weights(module: torch.nn.Module, folder: Path) -> None:
    """Load the weights of a module, also from a pickle that holds tensors alone.

    Raises:
        WrongCheckpoint: there are none, they cannot be loaded safely, or do not fit.
    """
    path = weights_file(folder)
    if path is None:
        raise WrongCheckpoint(f"{folder.name}/{SAFETENSORS}", "is missing", "pack the file")
    try:
        weights = read_weights(path)
        module.load_state_dict({name: each.float() for name, each in weights.items()})
    except Exception as error:  # noqa: BLE001 - each file format has its own error types
        raise WrongCheckpoint(
            f"{folder.name}/{path.name}",
            f"cannot be loaded ({summarize(error)})",
            f"save the module as {SAFETENSORS} with a current sentence-transformers",
        ) from None


def weights_file(folder: Path) -> Path | None:
    """Return the file with the weights of a module; None if there is none."""
    paths = (folder / name for name in (SAFETENSORS, PICKLE))
    return next((each for each in paths if each.is_file()), None)


def read_weights(path: Path) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a file, also of a pickle that holds tensors alone."""
    if path.suffix == ".safetensors":
        return load_file(path)
    tensors: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (first * second).sum(-1)


def _nearness(first: torch.Tensor, second: torch.Tensor, order: int) -> torch.Tensor:
    """Return the negative distance."""
    return -torch.linalg.vector_norm(first - second, ord=order, dim=-1)


# Each takes vectors of shape (..., size) and returns a number for each pair, the larger the more
# similar they are.
SIMILARITIES: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cosine": torch.nn.functional.cosine_similarity,
    "dot": _dot,
    "euclidean": partial(_nearness, order=2),
    "manhattan": partial(_nearness, order=1),
}
