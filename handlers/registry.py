"""The members of each family, by the names that YAML files and requests have for them.

A table names the module of each member, which is imported when the member is first used. Other
distributions add members by entry points, whose group is that of the table:

    [project.entry-points."transformers_on_torchserve.tasks"]
    next_sentence_prediction = "my_package.next_sentence_prediction:Task"

Entry points are read when a name is asked for that the table lacks, or when all names are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import ConfigError

DISTRIBUTION = "transformers_on_torchserve"


class Registry:
    """The members of one family.

    Args:
        family: the name of the family, which ends the name of the group of its entry points.
        package: the subpackage with a module for each name.
        attribute: the name of the member in its module.
        names: the names of the modules; `name = module:attribute` where a module has
            members of several names.
    """

    def __init__(self, family: str, package: str, attribute: str, names: Iterable[str]) -> None:
        self.group = f"{DISTRIBUTION}.{family}"
        places = (each.partition(" = ") for each in names)
        self.table = {
            name: f"{__package__}.{package}.{place or f'{name}:{attribute}'}"
            for name, _, place in places
        }

    def __contains__(self, name: object) -> bool:
        return name in self.table or name in self.added

    def __iter__(self) -> Iterator[str]:
        """Yield all names, first those of the table in its order.

        Raises:
            ConfigError: an entry point repeats a name.
        """
        yield from self.table
        yield from sorted(self.added)

    def load(self, name: str) -> Any:
        """Return the member of a name.

        Raises:
            KeyError: there is none.
            ConfigError: it is an entry point that repeats a name or does not import.
        """
        if name in self.table:
            module, _, attribute = self.table[name].partition(":")
            return getattr(import_module(module), attribute)
        entry_point = self.added[name]
        try:
            return entry_point.load()
        except Exception as error:
            raise ConfigError(
                f"{self._source(entry_point)}, does not import ({type(error).__name__}: {error})"
                "; install another version of it, or remove it."
            ) from error

    @cached_property
    def added(self) -> dict[str, EntryPoint]:
        """The entry points of other distributions by name.

        Raises:
            ConfigError: one repeats a name of the table or of another entry point.
        """
        added: dict[str, EntryPoint] = {}
        for entry_point in entry_points(group=self.group):
            name = entry_point.name
            if name in self.table or (name in added and added[name].value != entry_point.value):
                raise ConfigError(
                    f"{self._source(entry_point)}, repeats a name that is taken; rename it."
                )
            added[name] = entry_point
        return added

    def _source(self, entry_point: EntryPoint) -> str:
        """Return what an entry point is and where it comes from, for errors."""
        distribution = entry_point.dist.name if entry_point.dist else "an unknown distribution"
        return f"{self.group} {entry_point.name} = {entry_point.value}, of {distribution}"


TASKS = Registry(
    "tasks",
    "tasks",
    "Task",
    (
        "audio_classification",
        "automatic_speech_recognition",
        "depth_estimation",
        "document_question_answering",
        "feature_extraction",
        "fill_mask",
        "image_classification",
        "image_feature_extraction",
        "image_segmentation",
        "image_text_to_text",
        "image_to_text",
        "late_interaction",
        "mask_generation",
        "multimodal_embedding",
        "object_detection",
        "question_answering",
        "sentence_embedding",
        "sentence_ranking",
        "sentence_similarity",
        "sequence_classification",
        "sparse_embedding",
        "summarization",
        "table_question_answering",
        "text2text_generation",
        "text_generation",
        "text_to_image",
        "text_to_speech",
        "token_classification",
        "translation",
        "visual_question_answering",
        "zero_shot_classification",
        "zero_shot_image_classification",
        "zero_shot_object_detection",
        "zero_shot_token_classification",
    ),
)
FORMATS = Registry(
    "formats",
    "formats",
    "Format",
    (
        "neuron",
        "neuronx",
        "onnx",
        "openvino",
        "pretrained",
        "torch_export",
        "torchscript",
    ),
)
EXPLAINERS = Registry(
    "explainers",
    "explainers",
    "Explainer",
    (
        "feature_ablation",
        "input_x_gradient",
        "integrated_gradients",
        "kernel_shap",
        "layer_integrated_gradients",
        "occlusion",
        "shapley_value_sampling",
    ),
)
EXPLANATION_TARGETS = Registry(
    "explanation_targets",
    "explainers.targets",
    "ExplanationTarget",
    (
        "feature_extraction = vectors:TokenVectorTarget",
        "fill_mask = vocabulary:MaskTarget",
        "image_classification = images:ClassTarget",
        "image_feature_extraction = images:ImageVectorTarget",
        "image_segmentation = images:SegmentTarget",
        "multimodal_embedding = vectors:MultimodalTarget",
        "object_detection = images:DetectionTarget",
        "question_answering = answers:AnswerSpanTarget",
        "sentence_embedding = vectors:EmbeddingTarget",
        "sentence_ranking = text_labels:RankingTarget",
        "sentence_similarity = vectors:SimilarityTarget",
        "sequence_classification = text_labels:ClassTarget",
        "sparse_embedding = vocabulary:EntryTarget",
        "summarization = generated_text:SummaryTarget",
        "table_question_answering = answers:AnswerCellsTarget",
        "text2text_generation = generated_text:AnswerTarget",
        "text_generation = generated_text:ContinuationTarget",
        "token_classification = token_labels:EntityTarget",
        "translation = generated_text:TranslationTarget",
        "visual_question_answering = images:AnswerTarget",
        "zero_shot_classification = text_labels:CandidateTarget",
        "zero_shot_image_classification = images:CandidateTarget",
        "zero_shot_token_classification = token_labels:LabelledSpanTarget",
    ),
)
# The first protocol that recognises a request parses it. Those that decide by a path or a content
# type come before those that read the body. Vertex AI and SageMaker have separate
# routes for their bodies, so a path is unknown only after these.
PROTOCOLS = Registry(
    "protocols",
    "protocols",
    "Protocol",
    (
        "anthropic",
        "cohere",
        "openai",
        "text_embeddings_inference",
        "text_generation_inference",
        "vllm",
        "redaction",
        "describe",
        "form",
        "sagemaker",
        "open_inference",
        "kserve_v1",
        "unknown_path",
        "openai.without_path = openai:WithoutPath",
        "hugging_face",
        "legacy",
    ),
)
