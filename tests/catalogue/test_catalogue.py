"""Each entry of the catalogue is served, or refused before a download, as it says."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import HandlerSection, modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError, WrongCheckpoint
from hf_serve.scripts.hub.catalogue import find_in_catalogue, read_catalogue
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.hub.mode_detection import ModeNotCertain, mode_of_hub_task
from hf_serve.scripts.hub.model_check import check_model
from tests.catalogue.checkpoints import damaged_files, write
from tests.sentences import Sentence, refused
from tests.standins.hub import LocalHub

ENTRIES = read_catalogue()
SERVED = {name: entry for name, entry in ENTRIES.items() if not entry.refused}
REFUSED = {name: entry for name, entry in ENTRIES.items() if entry.refused}
NO_HUB = Hub("http://127.0.0.1:9")
HUB = "https://huggingface.co/"
# A name that the catalogue does not have, and no check knows.
COPY = "org/copy"
NOT_RUN = "this kit never runs such code"
# How a refusal lists what is served in place of a model, and words that begin no name of an entry.
ALTERNATIVES, PROSE = re.compile(r", or |, | or "), {"a", "which"}
# Models whose task on the hub is to choose labels, which are here for their vectors.
FOR_VECTORS = ("clip-embedding", "siglip-embedding", "siglip2-embedding")
# The mode that is found for what is refused, or the error where none is, and what the sentence
# names: the part of the checkpoint that no mode computes.
WITHOUT_A_MODE: dict[str, tuple[str | type[KitError], *tuple[str, ...]]] = {
    "bark": ("text_to_speech", "model_type bark", "VITS"),
    "birefnet": (WrongCheckpoint, "BiRefNet_config.BiRefNetConfig", NOT_RUN),
    "chronos-bolt": (ModeNotCertain, "ChronosBoltModelForForecasting"),
    "clap": (ModeNotCertain, "ClapModel"),
    "deepseek-ocr": (WrongCheckpoint, "deepseek_vl_v2", "DeepseekOCRConfig", NOT_RUN),
    "detr": ("object_detection", "detr", "timm"),
    "dia": ("automatic_speech_recognition", "dia", "CTC"),
    "dinov3": (ModeNotCertain, "DINOv3ViTModel"),
    "florence-2": ("image_to_text", "florence2", "without a prompt"),
    "florence-2-hf": ("image_to_text", "florence2", "without a prompt"),
    "gemma-3n": ("image_text_to_text", "gemma3n", "timm"),
    "granite-speech": ("automatic_speech_recognition", "granite_speech", "CTC"),
    "gte-multilingual": (WrongCheckpoint, "new", "configuration.NewConfig", NOT_RUN),
    "gte-multilingual-reranker": (WrongCheckpoint, "new", "configuration.NewConfig", NOT_RUN),
    "gte-qwen2": ("sentence_embedding", "modeling_qwen.Qwen2Model", "qwen2"),
    "internvl": (WrongCheckpoint, "internvl_chat", "InternVLChatConfig", NOT_RUN),
    "jina-embeddings-v2": ("sentence_embedding", "modeling_bert.JinaBertModel", "bert"),
    "jina-embeddings-v3": (
        WrongCheckpoint,
        "configuration_xlm_roberta.XLMRobertaFlashConfig",
        NOT_RUN,
    ),
    "jina-embeddings-v4": (WrongCheckpoint, "jina_embeddings_v4", NOT_RUN),
    "jina-reranker-m0": (ModeNotCertain, "JinaVLForRanking"),
    "jina-reranker-v2": (
        "sentence_ranking",
        "modeling_xlm_roberta.XLMRobertaForSequenceClassification",
    ),
    "jina-reranker-v3": (ModeNotCertain, "JinaForRanking"),
    "kokoro": (WrongCheckpoint, "model_type"),
    "nomic-embed-text-v2-moe": (WrongCheckpoint, "num_experts 4"),
    "nv-embed": (WrongCheckpoint, "nvembed", NOT_RUN),
    "qwen3-vl-embedding": (
        ModeNotCertain,
        "Qwen3VLForConditionalGeneration",
        "sentence_embedding",
    ),
    "qwen3-vl-reranker": (
        ModeNotCertain,
        "Qwen3VLForConditionalGeneration",
        "sentence_ranking",
    ),
    "rmbg": (WrongCheckpoint, "BiRefNet_config.BiRefNetConfig", NOT_RUN),
    "sam-2": (ModeNotCertain, "Sam2VideoModel"),
    "shieldgemma-2": ("image_classification", "shieldgemma2", "a text with each image"),
    "snowflake-arctic-embed-m-v2": (WrongCheckpoint, "gte", NOT_RUN),
    "speecht5": (ModeNotCertain, "SpeechT5ForTextToSpeech"),
    "timesfm": (ModeNotCertain, "TimesFmModelForPrediction"),
    "voxtral": ("automatic_speech_recognition", "voxtral", "CTC"),
}
# What the error of a mode that is named says, where it names something else.
WITH_A_MODE = {
    "dia": ("model_type dia", "VITS"),
    "dinov3": ("preprocessor_config.json", "Torchvision"),
    "florence-2": ("florence2", "encoder"),
    "florence-2-hf": ("florence2", "encoder"),
    "internvl": ("internvl_chat",),
    "qwen3-vl-embedding": ("qwen3_vl", "image_text_to_text"),
    "qwen3-vl-reranker": ("qwen3_vl", "AutoModelForSequenceClassification"),
    "shieldgemma-2": (
        "ShieldGemma2ForImageClassification",
        "Gemma3ForConditionalGeneration",
    ),
    "sam-2": ("Sam2VideoModel",),
    "jina-reranker-m0": ("qwen2_vl", "AutoModelForSequenceClassification"),
    "jina-reranker-v3": ("sentence_ranking", "JinaForRanking", "template"),
    "speecht5": ("model_type speecht5", "VITS"),
}


@pytest.mark.parametrize("name", SERVED)
def test_the_mode_follows_from_the_files(name: str, tmp_path: Path) -> None:
    entry = SERVED[name]
    folder = write(entry, tmp_path / entry.models[0].rpartition("/")[2], weights=False)
    found = check_model(str(folder), None, NO_HUB, entry.mode if name in FOR_VECTORS else None)
    assert (found.mode.mode, found.refusal) == (entry.mode, None)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_refused_before_its_weights_are_downloaded(
    name: str, tmp_path: Path
) -> None:
    expected, *facts = WITHOUT_A_MODE[name]
    with LocalHub({COPY: write(REFUSED[name], tmp_path / "copy")}) as hub:
        if isinstance(expected, str):
            found = check_model(COPY, None, Hub(hub.url))
            assert (found.mode.mode, found.refusal) == (expected, Sentence(*facts))
        else:
            with refused(expected, *facts):
                check_model(COPY, None, Hub(hub.url))
        assert "model.safetensors" not in hub.sent


@pytest.mark.parametrize("name", REFUSED)
def test_a_mode_that_is_named_refuses_what_is_not_served(name: str, tmp_path: Path) -> None:
    entry = REFUSED[name]
    mode = mode_of_hub_task(entry.checkpoint.hub_task)
    if mode is None:
        pytest.skip("no mode has the name of its task")
    _, *facts = WITHOUT_A_MODE[name]
    folder = write(entry, tmp_path / "copy")
    with refused(WrongCheckpoint, *WITH_A_MODE.get(name, facts)):
        tasks.load(folder, HandlerSection(mode=mode, model_name=COPY))


@pytest.mark.parametrize("name", SERVED)
def test_the_keys_of_an_entry_are_those_of_a_yaml(name: str) -> None:
    entry = SERVED[name]
    ModelConfig.parse({"handler": {"mode": entry.mode, **entry.handler}})


def test_ids_and_names_are_unique() -> None:
    models = [model.lower() for entry in ENTRIES.values() for model in entry.models]
    assert len(models) == len(set(models))
    last = [model.rpartition("/")[2] for model in models]
    assert len(last) == len(set(last))


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_refusal_says_to_serve_is_an_entry_that_is_served(name: str) -> None:
    _, _, remedy = str(REFUSED[name].refused).partition("serve ")
    firsts = {part.split()[0].strip(".;") for part in ALTERNATIVES.split(remedy) if part}
    found = {each: find_in_catalogue(each) for each in firsts - PROSE}
    assert not [name for name, known in found.items() if not known or known.entry.refused]


@pytest.mark.parametrize("name", ENTRIES)
def test_what_was_looked_up_is_a_file_of_the_entry(name: str) -> None:
    published = ENTRIES[name].checkpoint
    assert {*ENTRIES[name].verified} <= {"config.json", "README.md", *published.files}
    assert all(page.startswith(HUB) for page in ENTRIES[name].verified.values())


@pytest.mark.nightly
@pytest.mark.parametrize("name", ENTRIES)
def test_a_damaged_file_is_an_error_with_a_sentence(name: str, tmp_path: Path) -> None:
    folder = write(ENTRIES[name], tmp_path / "copy", weights=False)
    for path, text in damaged_files(folder, name):
        original = path.read_bytes()
        path.write_text(text, encoding="utf-8")
        with suppress(KitError):
            check_model(str(folder), None, NO_HUB)
        path.write_bytes(original)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ENTRIES)
def test_a_mode_that_does_not_fit_is_an_error_with_a_sentence(name: str, tmp_path: Path) -> None:
    folder = write(ENTRIES[name], tmp_path / "copy", weights=False)
    for mode in modes():
        with suppress(KitError):
            check_model(str(folder), None, NO_HUB, mode)
