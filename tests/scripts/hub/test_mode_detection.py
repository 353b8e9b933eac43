"""The mode of a checkpoint, from its small files and its task on the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_serve.scripts.hub.mode_detection import ModeNotCertain, detect_mode, mode_of_hub_task
from tests.reference.rerankers import KINDS
from tests.reference.rerankers import write as write_reranker
from tests.sentences import refused

POOLING = [
    {"idx": 0, "type": "sentence_transformers.models.Transformer", "path": ""},
    {"idx": 1, "type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
SPLADE = [{**POOLING[0]}, {"idx": 1, "type": "sentence_transformers.models.SpladePooling"}]
LOGIT_SCORE = [{**POOLING[0]}, {"idx": 1, "type": "sentence_transformers.modules.LogitScore"}]
LABELS = {"0": "contradiction", "1": "entailment"}

# Checkpoints of one architecture of each kind that people deploy.
BY_ARCHITECTURE = [
    ("bert", "BertForSequenceClassification", "sequence_classification"),
    ("modernbert", "ModernBertForSequenceClassification", "sequence_classification"),
    ("xlm-roberta", "XLMRobertaForTokenClassification", "token_classification"),
    ("distilbert", "DistilBertForQuestionAnswering", "question_answering"),
    ("roberta", "RobertaForMaskedLM", "fill_mask"),
    ("t5", "T5ForConditionalGeneration", "text2text_generation"),
    ("bart", "BartForConditionalGeneration", "text2text_generation"),
    ("marian", "MarianMTModel", "translation"),
    ("m2m_100", "M2M100ForConditionalGeneration", "translation"),
    ("gpt2", "GPT2LMHeadModel", "text_generation"),
    ("llama", "LlamaForCausalLM", "text_generation"),
    ("qwen3", "Qwen3ForCausalLM", "text_generation"),
    ("mamba", "MambaForCausalLM", "text_generation"),
    ("wav2vec2", "Wav2Vec2ForCTC", "automatic_speech_recognition"),
    ("whisper", "WhisperForConditionalGeneration", "automatic_speech_recognition"),
    ("hubert", "HubertForSequenceClassification", "audio_classification"),
    ("audio-spectrogram-transformer", "ASTForAudioClassification", "audio_classification"),
    ("vit", "ViTForImageClassification", "image_classification"),
    ("resnet", "ResNetForImageClassification", "image_classification"),
    ("dinov2", "Dinov2Model", "image_feature_extraction"),
    ("detr", "DetrForObjectDetection", "object_detection"),
    ("yolos", "YolosForObjectDetection", "object_detection"),
    ("segformer", "SegformerForSemanticSegmentation", "image_segmentation"),
    ("mask2former", "Mask2FormerForUniversalSegmentation", "image_segmentation"),
    ("dpt", "DPTForDepthEstimation", "depth_estimation"),
    ("sam", "SamModel", "mask_generation"),
    ("clip", "CLIPModel", "zero_shot_image_classification"),
    ("siglip", "SiglipModel", "zero_shot_image_classification"),
    ("vilt", "ViltForQuestionAnswering", "visual_question_answering"),
    ("layoutlm", "LayoutLMForQuestionAnswering", "document_question_answering"),
    ("tapas", "TapasForQuestionAnswering", "table_question_answering"),
    ("vits", "VitsModel", "text_to_speech"),
    ("blip", "BlipForConditionalGeneration", "image_to_text"),
]


def write(folder: Path, model_type: str, architecture: str | None, **files: Any) -> Path:
    config = {"model_type": model_type, "architectures": [architecture] if architecture else None}
    config |= files.pop("config", {})
    for name, content in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(("model_type", "architecture", "mode"), BY_ARCHITECTURE)
def test_the_architecture_names_the_mode(
    tmp_path: Path, model_type: str, architecture: str, mode: str
) -> None:
    found = detect_mode(write(tmp_path, model_type, architecture))
    assert found.mode == mode
    assert architecture in found.reason


@pytest.mark.parametrize(
    ("files", "mode"),
    [
        ({"modules": POOLING}, "sentence_embedding"),
        ({"modules": SPLADE}, "sparse_embedding"),
        ({"config_sentence_transformers": {"model_type": "SparseEncoder"}}, "sparse_embedding"),
        ({"config_sentence_transformers": {"model_type": "CrossEncoder"}}, "sentence_ranking"),
        ({"modules": LOGIT_SCORE}, "sentence_ranking"),
        (
            {"modules": POOLING, "config_sentence_transformers": {"model_type": "ColBERT"}},
            "late_interaction",
        ),
        ({"model_index": {}}, "text_to_image"),
    ],
)
def test_files_of_another_library_name_the_mode(
    tmp_path: Path, files: dict[str, Any], mode: str
) -> None:
    assert detect_mode(write(tmp_path, "bert", "BertModel", **files)).mode == mode


def test_a_dual_encoder_of_sentence_transformers_makes_vectors(tmp_path: Path) -> None:
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    folder = write(tmp_path, "clip", "CLIPModel", modules=modules)
    assert detect_mode(folder).mode == "multimodal_embedding"


def test_a_model_of_pages_is_for_late_interaction(tmp_path: Path) -> None:
    folder = write(tmp_path, "colqwen2", "ColQwen2ForRetrieval")
    assert detect_mode(folder).mode == "late_interaction"


def test_files_of_colbert_name_the_mode(tmp_path: Path) -> None:
    (tmp_path / "artifact.metadata").write_text("{}")
    assert detect_mode(write(tmp_path, "bert", "HF_ColBERT")).mode == "late_interaction"


def test_a_chat_template_tells_chats_about_images_from_captions(tmp_path: Path) -> None:
    names = "llava", "LlavaForConditionalGeneration"
    assert detect_mode(write(tmp_path, *names)).mode == "image_to_text"
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert detect_mode(write(tmp_path, *names)).mode == "image_text_to_text"


def test_a_classifier_with_one_label_ranks(tmp_path: Path) -> None:
    one = {"id2label": {"0": "LABEL_0"}}
    folder = write(tmp_path, "bert", "BertForSequenceClassification", config=one)
    assert detect_mode(folder).mode == "sentence_ranking"


@pytest.mark.parametrize(
    ("place", "mode"),
    [("Qwen/Qwen3-Reranker-0.6B", "sentence_ranking"), ("Qwen/Qwen3-0.6B", "text_generation")],
)
def test_the_name_of_a_family_of_rerankers_names_the_mode(
    tmp_path: Path, place: str, mode: str
) -> None:
    write_reranker(tmp_path / "model", "bare")
    path = tmp_path / "model" / "tokenizer_config.json"
    path.write_text(path.read_text().replace("chat_template", "other"))
    assert detect_mode(tmp_path / "model", place=place).mode == mode


@pytest.mark.parametrize("kind", KINDS)
def test_a_reranker_is_known_by_its_template_or_its_modules(tmp_path: Path, kind: str) -> None:
    assert detect_mode(write_reranker(tmp_path / "model", kind)).mode == "sentence_ranking"


@pytest.mark.parametrize(
    ("hub_task", "mode"),
    [
        ("text-classification", "sequence_classification"),
        ("zero-shot-classification", "zero_shot_classification"),
        ("text-ranking", "sentence_ranking"),
    ],
)
def test_the_task_on_the_hub_decides_between_modes_of_one_head(
    tmp_path: Path, hub_task: str, mode: str
) -> None:
    architecture = "BertForSequenceClassification"
    folder = write(tmp_path, "bert", architecture, config={"id2label": LABELS})
    assert detect_mode(folder, hub_task).mode == mode


def test_the_task_of_a_model_card_decides_too(tmp_path: Path) -> None:
    folder = write(tmp_path, "t5", "T5ForConditionalGeneration")
    (folder / "README.md").write_text("---\npipeline_tag: summarization\n---\n# A model\n")
    assert detect_mode(folder).mode == "summarization"


def test_a_task_on_the_hub_that_the_architecture_does_not_fit_decides_nothing(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, "gpt2", "GPT2LMHeadModel")
    assert detect_mode(folder, "token-classification").mode == "text_generation"


@pytest.mark.parametrize("content", [[], 1, "x", None, [1]])
@pytest.mark.parametrize(
    "name", ["config_sentence_transformers", "tokenizer_config", "modules", "README"]
)
def test_a_file_that_is_no_object_names_no_mode(tmp_path: Path, name: str, content: Any) -> None:
    folder = write(tmp_path, "blip", "BlipForConditionalGeneration", **{name: content})
    mode = "sentence_embedding" if name == "modules" else "image_to_text"
    assert detect_mode(folder).mode == mode


@pytest.mark.parametrize("readme", ["", "---\n: [\n---\n", "---\n- a\n---\n", "# no metadata"])
def test_a_strange_model_card_is_passed_over(tmp_path: Path, readme: str) -> None:
    (tmp_path / "README.md").write_text(readme)
    assert detect_mode(write(tmp_path, "gpt2", "GPT2LMHeadModel")).mode == "text_generation"


@pytest.mark.parametrize(
    ("model_type", "architecture", "config", "candidates"),
    [
        ("bert", "BertModel", {}, ["feature_extraction", "sentence_embedding"]),
        (
            "bert",
            "BertForSequenceClassification",
            {"id2label": LABELS},
            ["sequence_classification", "zero_shot_classification"],
        ),
        ("bert", "BertForNextSentencePrediction", {}, []),
        ("bert", None, {}, []),
    ],
)
def test_a_mode_that_is_not_certain_is_asked_for_by_name(
    tmp_path: Path, model_type: str, architecture: str, config: Any, candidates: list[str]
) -> None:
    folder = write(tmp_path, model_type, architecture, config=config)
    with refused(ModeNotCertain) as caught:
        detect_mode(folder, place="org/name")
    assert caught.value.candidates == candidates


def test_tasks_of_the_hub_have_modes() -> None:
    names = ["text-classification", "sentence-similarity", "fill-mask", "robotics", None]
    assert [mode_of_hub_task(name) for name in names] == [
        "sequence_classification",
        "sentence_embedding",
        "fill_mask",
        None,
        None,
    ]
