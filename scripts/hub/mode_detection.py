"""The mode of a checkpoint, from its small files and the task that the hub lists it under."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedConfig

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.architecture import BASES, FAMILIES_OF_PAGES
from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.checkpoints.checkpoint_files import (
    CONFIG,
    GLICLASS,
    GLINER,
    GLINER2,
    MODEL2VEC,
    MODEL_INDEX,
    files_in,
    model_type_in,
)
from hf_serve.handlers.checkpoints.dual_encoder import FAMILIES
from hf_serve.handlers.checkpoints.unread_files import is_setfit, setfit_error
from hf_serve.handlers.compat.transformers import has_model, model_classes
from hf_serve.handlers.config.documents import parse_yaml, read_json
from hf_serve.handlers.config.handler_section import HandlerSection, modes
from hf_serve.handlers.config.messages import enumerate_names
from hf_serve.handlers.config.task_aliases import MODES_OF_HUB_TASKS
from hf_serve.handlers.errors import KitError, WrongCheckpoint

# Of the modes that load the same class, the one for a checkpoint of which nothing else is known.
USUAL = (
    "text2text_generation",
    "fill_mask",
    "text_generation",
    "sequence_classification",
    "zero_shot_image_classification",
)
# Kinds of models of sentence-transformers 5, in `config_sentence_transformers.json`.
MODES_OF_SENTENCE_TRANSFORMERS = {
    "SentenceTransformer": "sentence_embedding",
    "SparseEncoder": "sparse_embedding",
    "CrossEncoder": "sentence_ranking",
    "ColBERT": "late_interaction",
}
IMAGE_VECTORS = "image_feature_extraction"
CHATS = "image_text_to_text"
# Modes of texts alone, which no vision language model has.
OF_TEXTS = ("sentence_embedding", "sentence_ranking", "feature_extraction")
ENTITIES = "zero_shot_token_classification"
# Files of other libraries, and the modes of their models.
LIBRARIES = (
    (MODEL_INDEX, "diffusers", "text_to_image"),
    (GLINER, "gliner", ENTITIES),
)
# Model types of other libraries, and the modes of their models.
MODES_OF_LIBRARIES = {GLICLASS: "zero_shot_classification", GLINER2: ENTITIES}
# Modes of base models whose checkpoints have files that say so.
NAMED_BY_FILES = ("late_interaction", "sentence_similarity", ENTITIES)
SENTENCE_TRANSFORMERS = "config_sentence_transformers.json"
MODULES = "modules.json"
LOGIT_SCORE = "LogitScore"
COLBERT = "artifact.metadata"
PYLATE = "pylate."
README = "README.md"
FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---", re.DOTALL)
MAX_README = 1 << 20
ENTAILMENT = re.compile("entail", re.IGNORECASE)


class ModeNotCertain(KitError):
    """The files of a checkpoint fit several modes, or none."""

    def __init__(self, place: str, reason: str, candidates: Collection[str]) -> None:
        self.candidates = list(candidates)
        remedy = (
            f"name the mode that it was trained for: {enumerate_names(self.candidates, ' or ')}"
            if candidates
            else "name the mode with --mode, or use a checkpoint of a mode that is served"
        )
        super().__init__(f"The mode of {place} is not certain: {reason}; {remedy}.")


@dataclass(frozen=True)
class DetectedMode:
    """The mode of a checkpoint.

    Attributes:
        mode: the mode.
        reason: what it follows from, as a clause.
    """

    mode: str
    reason: str


def detect_mode(
    folder: Path,
    hub_task: str | None = None,
    place: str | None = None,
    names: Collection[str] | None = None,
) -> DetectedMode:
    """Return the mode of a checkpoint.

    Args:
        folder: its config files; the weights are not needed.
        hub_task: the task that the hub lists it under (`pipeline_tag`). Without it, the one in the
            folder's README.md.
        place: the name of the checkpoint, for errors.
        names: the names of all its files, where the folder has not all of them.

    Raises:
        ModeNotCertain: its files fit several modes, or none.
        WrongCheckpoint: its config cannot be read, or it is a classifier of SetFit.
    """
    place = place or str(folder)
    hub_mode = mode_of_hub_task(hub_task or _hub_task_in(folder / README))
    names = {*files_in(folder), *(names or ())}
    library_mode = _mode_of_library(folder, names)
    if library_mode:
        return library_mode
    if is_setfit(names):
        raise setfit_error(place)
    found = _sentence_transformers_mode(folder, names)
    if found and found.mode != "sentence_embedding":
        return found
    handler = HandlerSection(mode="feature_extraction", model_name=place)
    checkpoint = Checkpoint.read(folder, handler)
    config = checkpoint.config
    if found:
        return DetectedMode(_mode_of_vectors(config), found.reason)
    architecture = (config.architectures or [""])[0]
    if config.model_type in FAMILIES_OF_PAGES:
        return DetectedMode("late_interaction", f"it is a {config.model_type} model")
    candidates = _candidates(checkpoint, architecture)
    if hub_mode in candidates:
        return DetectedMode(
            hub_mode, f"its class is {architecture}, and its task on the hub is {hub_mode}"
        )
    reason = f"its class is {architecture}" if architecture else "its config names no architecture"
    _check_reads_chats(place, reason, hub_mode, candidates)
    if len(candidates) == 1:
        return DetectedMode(candidates[0], reason)
    classifies = {"sentence_ranking", "sequence_classification"} <= {*candidates}
    if classifies and config.num_labels > 1:
        candidates.remove("sentence_ranking")
    by_files = _mode_by_files(folder, config, candidates)
    if by_files:
        return DetectedMode(by_files[0], ", and ".join(filter(None, (reason, by_files[1]))))
    raise ModeNotCertain(place, reason, candidates)


def _check_reads_chats(
    place: str, reason: str, hub_mode: str | None, candidates: Collection[str]
) -> None:
    """Check that the hub does not list a vision language model for vectors or rankings.

    Raises:
        ModeNotCertain: it does, and no mode has these results of it.
    """
    if hub_mode in OF_TEXTS and CHATS in candidates:
        raise ModeNotCertain(place, f"{reason}, and its task on the hub is {hub_mode}", ())


def mode_of_hub_task(hub_task: str | None) -> str | None:
    """Return the mode of a task of the hub, such as `text-classification`; None for others."""
    name = (hub_task or "").replace("-", "_")
    mode = MODES_OF_HUB_TASKS.get(name, name)
    return mode if mode in modes() else None


def _candidates(checkpoint: Checkpoint, architecture: str) -> list[str]:
    """Return the modes whose auto class loads an architecture, without modes of another input."""
    config = checkpoint.config
    reads_images = has_model("AutoModelForImageClassification", config)
    base, other = list[str](), list[str]()
    for mode in modes():
        auto_class = _auto_class(mode, checkpoint)
        if auto_class in BASES and (mode == IMAGE_VECTORS) != reads_images:
            continue
        if auto_class and _loads(auto_class, config, architecture):
            (base if auto_class in BASES else other).append(mode)
    return other or [mode for mode in base if mode not in NAMED_BY_FILES]


def _auto_class(mode: str, checkpoint: Checkpoint) -> str | None:
    """Return the auto class of a mode for a checkpoint; None if the mode refuses its kind."""
    try:
        return tasks.get(mode).for_checkpoint(checkpoint).auto_class_for(checkpoint.config)
    except WrongCheckpoint:
        return None


def _loads(auto_class: str, config: PreTrainedConfig, architecture: str) -> bool:
    try:
        names = {each.__name__ for each in model_classes(auto_class, config)}
    except AttributeError:
        return False  # A class of another library.
    return architecture in names


def _mode_by_files(
    folder: Path, config: PreTrainedConfig, candidates: Collection[str]
) -> tuple[str, str] | None:
    """Return the mode of a checkpoint that several fit, and what tells it from the others.

    That is empty for the usual mode of its class.
    """
    labels = getattr(config, "id2label", None) or {}
    writes = "text_generation" in candidates
    found: Iterable[tuple[str, bool, str]] = (
        ("sentence_ranking", writes, "it has the template or the name of a reranker"),
        ("image_text_to_text", _has_chat_template(folder), "it has a chat template"),
        ("sentence_ranking", len(labels) == 1, "it has one label"),
        (
            "translation",
            config.model_type in ("marian", "m2m_100", "nllb"),
            "its family translates",
        ),
        ("image_to_text", True, "it has no chat template"),
    )
    for mode, fits, reason in found:
        if mode in candidates and fits:
            return mode, reason
    if "sequence_classification" in candidates and any(
        ENTAILMENT.search(str(label)) for label in labels.values()
    ):
        return None
    usual = next((mode for mode in USUAL if mode in candidates), None)
    return (usual, "") if usual else None


def _mode_of_vectors(config: PreTrainedConfig) -> str:
    """Return the mode of a model of sentence-transformers, which may read images as well."""
    is_dual_encoder = config.model_type in FAMILIES
    return "multimodal_embedding" if is_dual_encoder else "sentence_embedding"


def _mode_of_library(folder: Path, names: Collection[str]) -> DetectedMode | None:
    """Return the mode of a checkpoint of another library; None for others."""
    for name, library, mode in LIBRARIES:
        if name in names:
            return DetectedMode(mode, f"it has a {name}, as {library} writes it")
    kind = model_type_in(folder / CONFIG)
    found = MODES_OF_LIBRARIES.get(kind) if isinstance(kind, str) else None
    return DetectedMode(found, f"its model type is {kind}") if found else None


def _sentence_transformers_mode(folder: Path, names: Collection[str]) -> DetectedMode | None:
    if COLBERT in names:
        return DetectedMode("late_interaction", f"it has an {COLBERT}, as ColBERT writes it")
    kind = _object(folder / SENTENCE_TRANSFORMERS).get("model_type")
    if isinstance(kind, str) and kind in MODES_OF_SENTENCE_TRANSFORMERS:
        mode = MODES_OF_SENTENCE_TRANSFORMERS[kind]
        return DetectedMode(mode, f"it is a {kind} of sentence-transformers")
    if model_type_in(folder / "config.json") == MODEL2VEC:
        return DetectedMode("sentence_embedding", f"its model type is {MODEL2VEC}")
    if MODULES not in names:
        return None
    listed = _json(folder / MODULES)
    modules = listed if isinstance(listed, list) else []
    types = [str(each.get("type", "")) for each in modules if isinstance(each, Mapping)]
    if any(each.startswith(PYLATE) for each in types):
        return DetectedMode("late_interaction", "its modules have one of PyLate")
    ends = {each.rpartition(".")[2] for each in types}
    sparse = next(
        (each for each in ("SpladePooling", "SparseStaticEmbedding") if each in ends), None
    )
    if sparse:
        return DetectedMode("sparse_embedding", f"its modules have a {sparse}")
    if LOGIT_SCORE in ends:
        return DetectedMode("sentence_ranking", f"its modules have a {LOGIT_SCORE}")
    return DetectedMode("sentence_embedding", f"it has the {MODULES} of sentence-transformers")


def _hub_task_in(readme: Path) -> str | None:
    """Return the task in the metadata of a model card."""
    try:
        with readme.open(encoding="utf-8") as file:
            match = FRONT_MATTER.match(file.read(MAX_README))
        found = parse_yaml(match[1]) if match else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    task = found.get("pipeline_tag") if isinstance(found, Mapping) else None
    return task if isinstance(task, str) else None


def _has_chat_template(folder: Path) -> bool:
    has_file = any(folder.glob("chat_template*"))
    return has_file or "chat_template" in _object(folder / "tokenizer_config.json")


def _object(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one where there is none."""
    found = _json(path)
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> Any:
    """Return a JSON file; an empty object where there is none."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
