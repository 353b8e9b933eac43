"""The modules of sentence-transformers in a checkpoint: modules.json, and the layers it names.

Source of the formats: the `save` methods of the modules of sentence-transformers 2.0 to 5.7, and of
PyLate 1.6, whose dense layers may have a residual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, Field, PositiveInt, TypeAdapter, ValidationError
from safetensors.torch import load_file

from handlers.errors import WrongCheckpoint, summarize

MODULES = "modules.json"
CONFIG = "config.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"

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


class ModuleEntry(BaseModel):
    """An entry of modules.json; the last word of `type` is the class of the module."""

    path: str = Field(pattern=r"^[A-Za-z0-9_-]*$")
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
    name = config.activation_function.rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise WrongCheckpoint(
            f"{folder.name}/{CONFIG}",
            f"names the activation function {config.activation_function:.80}",
            f"use one of {', '.join(ACTIVATIONS)} of torch.nn",
        )
    dense = _Dense(config, ACTIVATIONS[name]())
    _load_weights(dense, folder)
    return dense


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
    """Return the entries of modules.json behind the model, which has a module of its own.

    Args:
        directory: the checkpoint, which has the file.
        first: the classes of the first modules; all others are layers.

    Raises:
        WrongCheckpoint: a module is not supported, or they are in another order.
    """
    entries = _read(directory / MODULES, TypeAdapter(list[ModuleEntry]).validate_json)
    kinds = [each.kind for each in entries]
    unknown = sorted(set(kinds) - {*first, *LAYERS})
    if unknown:
        raise WrongCheckpoint(
            MODULES,
            f"has a module {unknown[0]:.80}, which this mode does not support",
            f"use a checkpoint of {', '.join([*first, *LAYERS])}",
        )
    if kinds[: len(first)] != [*first] or not {*first}.isdisjoint(kinds[len(first) :]):
        raise WrongCheckpoint(
            MODULES,
            f"has the modules {', '.join(kinds)[:80] or 'of an empty list'}",
            f"use a checkpoint of one {', one '.join(first)}, and other modules behind them",
        )
    if entries[0].path:
        raise WrongCheckpoint(
            MODULES,
            f"has its model in the folder {entries[0].path:.80}",
            "move the files of that folder beside modules.json, and make its path empty",
        )
    return list(entries[1:])


def load_layers(directory: Path, entries: Sequence[ModuleEntry]) -> list[torch.nn.Module]:
    """Return the layers that entries name, with their weights.

    Raises:
        WrongCheckpoint: weights are missing or do not fit.
    """
    return [LAYERS[each.kind](directory / each.path) for each in entries]


def layers_dimension(directory: Path, size: int, layers: Sequence[ModuleEntry]) -> int:
    """Return the size of the vectors behind the layers.

    Raises:
        WrongCheckpoint: a layer takes vectors of another size.
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
    """Load the weights of a module, also those of a pickle that holds tensors alone.

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
    """Return the tensors of a file, also those of a pickle that holds tensors alone."""
    if path.suffix == ".safetensors":
        return load_file(path)
    tensors: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors
