"""A tiny checkpoint of each entry of the catalogue: its files and keys, with small sizes.

The weights are the same on every machine, so that the library that defines the results of an entry
runs in an environment of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoConfig

from hf_serve.scripts.hub.catalogue import CatalogueEntry, PublishedCheckpoint
from tests import tiny_gliner
from tests.catalogue import tokenizer_kinds
from tests.catalogue.sizes import ADDED, SAME, SIDE, SIZES, VALUES, VIT

CONFIG, WEIGHTS = "config.json", "model.safetensors"
MODULES, GLINER, PICKLE = "modules.json", "gliner_config.json", ".pt"
GLICLASS = "GLiClass"
GLINER2, GLINER2_ENCODER = "extractor", "encoder_config/config.json"
# Keys of a config that depend on the tokenizer, and values that say that they do not.
OF_TOKENIZER = (
    *("vocab_size", "_token_id", "image_token_index"),
    *("max_position_embeddings", "class_token_index", "text_token_index"),
)
UNSET = (None, -1)
# Sequences of tokens that a model may not write: the padding of Marian.
FORBIDDEN = "bad_words_ids"
# The published tokens by which rerankers judge.
JUDGEMENTS = {9693: "yes", 2152: "no", 9454: "Yes"}
# Parts of a config that have a config, other than those whose names end like this.
PART = "_config"
PARTS = ("encoder", "decoder")
# The size of a token's vector.
WIDTHS = ("hidden_size", "d_model", "dim", "n_embd")
# Weights are within it. Those of a convolution and of a vector are within this part of it.
MOST, MOST_OF_CONVOLUTIONS, MOST_OF_VECTORS = 0.8, 0.4, 0.2
MOST_OF_GLINER = 0.3
# The experts of gpt-oss, whose numbers of four bits have a scale, 2 ** (scale - 127), in blocks.
EXPERTS = ("experts.gate_up_proj", "experts.down_proj")
MXFP4_BLOCK, MXFP4_SCALES = 32, (123, 126)
# The keys of a size that is one of sides, or from this number on of pixels.
PIXELS_OR_SIDES, MOST_SIDE = "longest_edge shortest_edge", 10_000
# The files of components of a pipeline, by the ends of their classes. Others have weights.
MODEL_INDEX = "model_index.json"
FILES_OF_COMPONENTS = {
    "Scheduler": ("scheduler_config.json",),
    "Tokenizer": ("vocab.json", "tokenizer_config.json"),
    "ImageProcessor": ("preprocessor_config.json",),
}
# Sizes in the configs of modules.
MODULE_SIZES = (
    *("in_features", "out_features", "word_embedding_dimension", "embedding_dimension"),
    *("dimension", "dim"),
)

# Damaged files: how many are tried of a checkpoint, what a key has in place of its value, and what
# a file has in place of its document. Files of a vocabulary are read by the package tokenizers.
DAMAGED_TEXTS = 30
OTHER_VALUES: tuple[Any, ...] = (None, "x", 0, -1, 1.5, [], {}, True, ["a"], {"a": 1})
WHOLE_FILES = ("", "{", "[]", "{}", "1", "null", '"x"')
OF_VOCABULARY_SIZE = ("vocab_size", "max_position_embeddings")
OF_VOCABULARY = ("tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json")


def write(
    entry: CatalogueEntry, folder: Path, *, weights: bool = True, real_size: bool = False
) -> Path:
    """Write a checkpoint of an entry.

    Args:
        entry: the entry.
        folder: the folder, which is created.
        weights: whether the weights are those of a model; otherwise they fit nothing, as those of
            an entry that is refused.
        real_size: whether the model has its published size, and the weights of a new model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    published = entry.checkpoint
    static = _static_folder(published.files, folder)
    values = write_tokenizer(published.tokenizer, static or folder)
    if real_size:
        return _write_real(published, folder, values)
    config = _adapt(shrink(published.config), values)
    if config:
        _write(folder / CONFIG, config)
    hidden = next((published.config[key] for key in WIDTHS if key in published.config), 1)
    for name, content in published.files.items():
        if name.endswith(PICKLE):
            _write_linear(folder / name, shrink_file(name, content, hidden, values))
        else:
            _write(folder / name, shrink_file(name, content, hidden, values))
    _write_card(published, folder)
    if MODEL_INDEX in published.files:
        _write_components(folder, published.files[MODEL_INDEX])
        return folder
    if static:
        _write_static(static, values["vocab_size"])
    elif entry.refused or not weights:
        save_file({"weight": np.zeros(4, np.float32)}, folder / WEIGHTS)
    else:
        _write_weights(folder, config)
    _write_modules(folder)
    return folder


def _write_card(published: PublishedCheckpoint, folder: Path) -> None:
    if published.hub_task:
        _write(folder / "README.md", f"---\npipeline_tag: {published.hub_task}\n---\n")


def _write_modules(folder: Path) -> None:
    for name, write_module in MODULE_WEIGHTS.items():
        for path in folder.glob(f"*_{name}/{CONFIG}"):
            write_module(path.parent)


def _write_weights(folder: Path, config: Mapping[str, Any]) -> None:
    if (folder / GLINER).is_file():
        _write_gliner(folder, config)
    elif config.get("model_type") == GLICLASS:
        encoder = AutoConfig.for_model(**config["encoder_config"])
        _write_shapes(folder, tiny_gliner.gliclass_shapes(config, encoder))
    elif config.get("model_type") == GLINER2:
        values = json.loads((folder / GLINER2_ENCODER).read_text(encoding="utf-8"))
        encoder = AutoConfig.for_model(**values)
        _write_shapes(folder, tiny_gliner.gliner2_shapes(config, encoder))
    else:
        save_weights(make_model(config), folder, _projection(folder, config))


def _write_real(published: PublishedCheckpoint, folder: Path, values: dict[str, Any]) -> Path:
    """Write a checkpoint of the published size, with a small tokenizer."""
    ids = {key: each for key, each in values.items() if key not in OF_VOCABULARY_SIZE}
    config = _adapt(published.config, ids)
    path = folder / "tokenizer_config.json"
    if path.is_file():
        settings = json.loads(path.read_text(encoding="utf-8"))
        length = config.get("max_position_embeddings", SIZES["max_position_embeddings"])
        _write(path, {**settings, "model_max_length": length})
    _write(folder / CONFIG, config)
    for name, content in published.files.items():
        _write(folder / name, content)
    _write_card(published, folder)
    torch.manual_seed(0)
    make_model(config).save_pretrained(folder)
    _write_modules(folder)
    return folder


def count_parameters(entry: CatalogueEntry) -> int | None:
    """Return the number of parameters of the published model; None where it is not known.

    It is not known of models that transformers does not make: GLiNER, GLiNER2, GLiClass, static
    embeddings, diffusers.
    """
    published = entry.checkpoint
    config = published.config
    is_other = GLINER in published.files or config.get("model_type") in (GLICLASS, GLINER2)
    if is_other or "architectures" not in config:
        return None
    with torch.device("meta"):
        return sum(each.numel() for each in make_model(published.config).parameters())


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with small sizes and the same keys, in each of its parts."""
    family = str(config.get("model_type"))
    sizes = {**SIZES, **VALUES.get(family, {})}
    return {key: _shrunk(key, value, sizes) for key, value in config.items()} | ADDED.get(
        family, {}
    )


def _shrunk(key: str, value: Any, sizes: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping) and (key.endswith(PART) or key in PARTS):
        return shrink(value)
    if key == "layer_types":
        return _some_layers(value)
    return value if value is None else sizes.get(key, value)


def _some_layers(kinds: list[str]) -> list[str]:
    """Return the kinds of four layers, each of which a published model has."""
    chosen = [*kinds[:3], kinds[-1]]
    others = [each for each in dict.fromkeys(kinds) if each not in chosen]
    return [chosen[0], *others, *chosen[1 + len(others) :]]


def shrink_file(name: str, content: Any, hidden: int, values: Mapping[str, Any]) -> Any:
    """Return the content of a file with sizes that fit the config.

    Args:
        name: its name.
        content: its content.
        hidden: the published size of the vectors of tokens.
        values: the values that depend on the tokenizer.
    """
    if not isinstance(content, Mapping):
        return content
    if name in ("preprocessor_config.json", "processor_config.json"):
        patch = {"patch_size": VIT["patch_size"]} if name == "processor_config.json" else {}
        sides = {key: _side(key, value) for key, value in content.items()}
        return {key: patch.get(key, value) for key, value in sides.items()}
    if name in (GLINER, GLINER2_ENCODER):
        return _adapt(shrink(content), values)
    if name == "generation_config.json":
        forbidden = {FORBIDDEN: [[values["pad_token_id"]]]} if FORBIDDEN in content else {}
        return _adapt({**content, **forbidden}, values)
    if name.endswith(f"_LogitScore/{CONFIG}"):
        return {key: values.get(JUDGEMENTS.get(token, "")) for key, token in content.items()}
    is_module = name.endswith((f"/{CONFIG}", PICKLE)) or name == "artifact.metadata"
    return {
        key: max(1, round(value / hidden * SIZES["hidden_size"]))
        if is_module and key in MODULE_SIZES and value is not None
        else value
        for key, value in content.items()
    }


def write_tokenizer(kind: str | None, folder: Path) -> dict[str, Any]:
    """Write a tokenizer of a kind; returns the values of a config that depend on it."""
    if kind is None:
        return {}
    found = tokenizer_kinds.write(kind, folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    length = found.get("max_position_embeddings", SIZES["max_position_embeddings"])
    _write(path, {**settings, "model_max_length": length})
    return found


def make_model(config: Mapping[str, Any]) -> transformers.PreTrainedModel:
    """Return a model of the architecture of a config."""
    values = {key: value for key, value in config.items() if key != "transformers_version"}
    made = AutoConfig.for_model(**values)
    name = next(iter(made.architectures or ()), "")
    kind = getattr(transformers, name, None) or transformers.AutoModel._model_mapping[type(made)]
    model: transformers.PreTrainedModel = kind(made).float().eval()
    return model


def save_weights(
    model: torch.nn.Module, folder: Path, more: Mapping[str, Any] | None = None
) -> None:
    """Write seeded weights for a model, each of which depends on its name alone."""
    buffers = {name for name, _ in model.named_buffers()}
    weights = {
        name: _weight(name, parameter) for name, parameter in sorted(model.named_parameters())
    }
    if getattr(model.config, "quantization_config", None):
        weights = dict(_packed_experts(weights))
    weights |= {name: each.numpy() for name, each in model.state_dict().items() if name in buffers}
    save_file({**weights, **(more or {})}, folder / WEIGHTS, metadata={"format": "pt"})


def _packed_experts(weights: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield weights with experts in MXFP4: two numbers in a byte, and a scale for each 32."""
    for name, values in weights.items():
        if not name.endswith(EXPERTS):
            yield name, values
            continue
        count, size, outputs = values.shape
        shape = (count, outputs, size // MXFP4_BLOCK)
        seeded = np.random.Generator(np.random.PCG64(crc32(name.encode())))
        yield f"{name}_blocks", seeded.integers(0, 256, (*shape, MXFP4_BLOCK // 2), np.uint8)
        yield f"{name}_scales", seeded.integers(*MXFP4_SCALES, shape, np.uint8)


def _adapt(config: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with the values that depend on the tokenizer, in each of its parts."""
    return {
        key: _adapt(value, values)
        if isinstance(value, dict) and (key.endswith(PART) or key in PARTS)
        else values[key]
        if key in values and key.endswith(OF_TOKENIZER) and value not in UNSET
        else value
        for key, value in config.items()
    }


def _weight(name: str, parameter: torch.Tensor) -> Any:
    """Return uniform numbers; those of a norm are near one, and those of a bias near zero."""
    values = parameter.detach().numpy()
    if values.ndim < 2 and np.ptp(values) == 0:
        return np.asarray(values + MOST_OF_VECTORS * _uniform(name, *values.shape), np.float32)
    share = MOST_OF_CONVOLUTIONS if values.ndim > 2 else 1
    return np.asarray(share * _uniform(name, *values.shape), np.float32)


def _projection(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the projection of a ColBERT, which is among the weights of the model."""
    path = folder / "artifact.metadata"
    if not path.is_file():
        return {}
    size = json.loads(path.read_text(encoding="utf-8"))["dim"]
    return {"linear.weight": _uniform("linear.weight", size, config["hidden_size"])}


def _write_dense(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    sizes = config["out_features"], config["in_features"]
    weights = {"linear.weight": _uniform(str(folder.name), *sizes)}
    if config["bias"]:
        weights["linear.bias"] = _uniform("bias", 1, sizes[0])[0]
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _write_norm(folder: Path) -> None:
    size = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["dimension"]
    weights = {f"norm.{name}": _uniform(name, 1, size)[0] for name in ("weight", "bias")}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def _write_table(folder: Path) -> None:
    """Write the weights of the tokens of queries, and the tokenizer once more."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((folder.parent / name).read_bytes())
    size = json.loads((folder.parent / CONFIG).read_text(encoding="utf-8"))["vocab_size"]
    weights = {"weight": np.abs(_uniform("weight", 1, size)[0])}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


MODULE_WEIGHTS = {
    "Dense": _write_dense,
    "LayerNorm": _write_norm,
    "SparseStaticEmbedding": _write_table,
}


def _static_folder(files: Mapping[str, Any], folder: Path) -> Path | None:
    """Create and return the folder of static embeddings; None if a checkpoint has none."""
    first: Mapping[str, Any] = next(iter(files.get(MODULES, ())), {})
    if not str(first.get("type")).endswith(".StaticEmbedding"):
        return None
    place: Path = folder / first["path"]
    place.mkdir(exist_ok=True)
    return place


def _write_static(folder: Path, count: int) -> None:
    """Write the vectors of tokens, under the name that their library gives them."""
    (folder / "tokenizer_config.json").unlink()
    name = "embeddings" if (folder / CONFIG).is_file() else "embedding.weight"
    save_file({name: _uniform(name, count, SIZES["hidden_size"])}, folder / WEIGHTS)


def _write_components(folder: Path, index: Mapping[str, Any]) -> None:
    """Write the files that components of a pipeline have, with weights that fit nothing."""
    for name, place in index.items():
        library, kind = place if isinstance(place, list) else (None, None)
        if kind is None:
            continue
        files = next((each for end, each in FILES_OF_COMPONENTS.items() if kind.endswith(end)), ())
        for file in files or (CONFIG,):
            _write(folder / name / file, {})
        if not files:
            prefix = "diffusion_pytorch_" if library == "diffusers" else ""
            save_file({"weight": np.zeros(4, np.float32)}, folder / name / f"{prefix}{WEIGHTS}")


def _write_gliner(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the weights of a GLiNER and of its encoder, whose config is in either file."""
    own = json.loads((folder / GLINER).read_text(encoding="utf-8"))
    values = dict(own.get("encoder_config") or config)
    if own.get("vocab_size", -1) == -1:
        values["vocab_size"] += len(tiny_gliner.TOKENS)
    _write_shapes(folder, tiny_gliner.shapes_of(own, AutoConfig.for_model(**values)))


def _write_shapes(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write seeded weights of GLiNER, GLiNER2 or GLiClass."""
    # With these numbers, some spans fit the labels and others do not.
    weights = {
        name: tiny_gliner.weight(name, shape, _random(f"b{name}"), MOST_OF_GLINER)
        for name, shape in shapes.items()
    }
    save_file(weights, folder / WEIGHTS)


def _write_linear(path: Path, sizes: Mapping[str, int]) -> None:
    """Write a layer of bge-m3 as FlagEmbedding does: the state of a module of torch."""
    size, hidden = sizes["out_features"], sizes["in_features"]
    weights = {"weight": _uniform(path.name, size, hidden), "bias": _uniform("bias", 1, size)[0]}
    torch.save({name: torch.from_numpy(each) for name, each in weights.items()}, path)


def _uniform(name: str, *shape: int) -> Any:
    return np.asarray(_random(name).random(shape) * 2 * MOST - MOST, np.float32)


def _side(key: str, value: Any) -> Any:
    """Return a size of images or sounds; a size of images is a number, two or a mapping."""
    if isinstance(value, list) and key == "size":
        return [SIDE[key]["number"]] * 2
    if key not in SIDE or value in (None, SAME.get(key)):
        return value
    kind = " ".join(sorted(value)) if isinstance(value, Mapping) else "number"
    if kind == PIXELS_OR_SIDES and value["longest_edge"] < MOST_SIDE:
        return {"longest_edge": 256, "shortest_edge": 128}
    return SIDE[key].get(kind, value)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    path.write_text(text, encoding="utf-8")


def _random(name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(crc32(name.encode())))


def damaged_files(folder: Path, seed: str) -> Iterator[tuple[Path, str]]:
    """Yield JSON files of a checkpoint, each with a text in which one key is damaged.

    The key is missing, or its value is of another type; or the file is something else.
    """
    rng = random.Random(seed)
    files = [path for path in sorted(folder.rglob("*.json")) if path.name not in OF_VOCABULARY]
    texts = [(path, text) for path in files for text in _damaged_texts(path, rng)]
    yield from rng.sample(texts, min(len(texts), DAMAGED_TEXTS))


def _damaged_texts(path: Path, rng: random.Random) -> Iterator[str]:
    yield from WHOLE_FILES
    document = json.loads(path.read_text(encoding="utf-8"))
    for part in _objects(document):
        for key, value in list(part.items()):
            del part[key]
            yield json.dumps(document)
            part[key] = rng.choice(OTHER_VALUES)
            yield json.dumps(document)
            part[key] = value


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a document."""
    if isinstance(value, dict):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in list(parts):
        yield from _objects(each)
