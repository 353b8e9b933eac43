"""Speech recognition: the answers of the pipeline, with CTC models and with Whisper."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoFeatureExtractor, AutoTokenizer, pipeline

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.tasks.automatic_speech_recognition import pieces
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import sounds
from tests.sentences import Sentence, refused
from tests.serving import Served, differences
from tests.sounds import SOUNDS, TEXTS, encoded, file_of, sound_of

MODE = "automatic_speech_recognition"
LETTERS = ("Wav2Vec2ForCTC", "HubertForCTC")
WHISPER = "WhisperForConditionalGeneration"
LONG = [sound_of(number, seconds) for number, seconds in enumerate((5.3, 1.9, 3.2))]
OF_CTC: list[dict[str, Any]] = [
    {},
    {"return_timestamps": "char"},
    {"return_timestamps": "word"},
    {"chunk_length_s": 1, "return_timestamps": "char"},
    {"chunk_length_s": 1.5, "stride_length_s": [0.5, 0.2], "return_timestamps": "word"},
    {"chunk_length_s": 1, "stride_length_s": 0},
    # Three eighths are the most.
    {"chunk_length_s": 1.6, "stride_length_s": 0.6},
]
OF_WHISPER: list[dict[str, Any]] = [
    {},
    {"return_timestamps": True},
    {"return_timestamps": "word"},
    {"language": "german", "return_language": True, "return_timestamps": True},
    {"return_language": True, "return_timestamps": "word", "num_beams": 2},
    {"return_language": True, "max_new_tokens": 4},
    {"language": "en", "task": "translate", "num_beams": 1},
    {"max_new_tokens": 5, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Served]:
    """The pipeline and the server of a checkpoint."""
    folder = sounds.write(tmp_path_factory.mktemp("whisper") / "model", WHISPER)
    return reference(folder, "AutoModelForSpeechSeq2Seq"), Served(folder, MODE)


def reference(folder: Path, auto_class: str) -> Any:
    return pipeline(
        "automatic-speech-recognition",
        model=getattr(transformers, auto_class).from_pretrained(folder),
        feature_extractor=AutoFeatureExtractor.from_pretrained(folder),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        device=torch.device("cpu"),
    )


def pairs(answer: Any) -> Any:
    """Return an answer with lists in place of tuples, and without languages.

    The newest transformers has the requested language, and 5.5 has none.
    """
    named = {name: value for name, value in answer.items() if name != "language"}
    chunks = [
        {
            name: list(part) if isinstance(part, tuple) else part
            for name, part in each.items()
            if name != "language"
        }
        for each in answer.get("chunks", ())
    ]
    return {**named, **({"chunks": chunks} if "chunks" in answer else {})}


def compare(model: Served, expected: list[Any], given: list[Any], parameters: Any) -> None:
    texts = [encoded(file_of(each)) for each in given]
    alone = [model.ask(text, **parameters) for text in texts]
    together = model.ask([*texts, *reversed(texts)], **parameters)
    for found in (alone, together[: len(texts)], together[: len(texts) - 1 : -1]):
        found = [pairs(each) for each in found]
        assert not differences(found, [pairs(each) for each in expected], 1e-6)


@pytest.mark.parametrize("family", LETTERS)
def test_answers_of_ctc_models_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    folder = sounds.write(tmp_path / "model", family)
    pipe, model = reference(folder, "AutoModelForCTC"), Served(folder, MODE)
    for parameters in OF_CTC:
        given = LONG if "chunk_length_s" in parameters else SOUNDS
        stride = parameters.get("stride_length_s")
        theirs = {
            **parameters,
            **({"stride_length_s": tuple(stride)} if isinstance(stride, list) else {}),
        }
        compare(model, [pipe(each, **theirs) for each in given], given, parameters)


# The others are combinations of what these have.
QUICK = (4, 7)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if number in QUICK else pytest.mark.nightly)
        for number in range(len(OF_WHISPER))
    ],
)
def test_answers_of_whisper_are_those_of_the_pipeline(
    whisper: tuple[Any, Served], number: int
) -> None:
    (pipe, model), parameters = whisper, OF_WHISPER[number]
    named = ("return_timestamps", "return_language")
    theirs = {name: value for name, value in parameters.items() if name in named}
    theirs["generate_kwargs"] = {
        name: value for name, value in parameters.items() if name not in named
    }
    # Two sounds of different lengths; Whisper writes each token of tiny models as slowly as others.
    given = SOUNDS[:2]
    compare(model, [pipe(each, **theirs) for each in given], given, parameters)


@pytest.mark.parametrize(
    "timestamps",
    [True, *(pytest.param(each, marks=pytest.mark.nightly) for each in (None, "word"))],
)
def test_whisper_reads_long_audio_in_chunks(whisper: tuple[Any, Served], timestamps: Any) -> None:
    pipe, model = whisper
    parameters = {"return_timestamps": timestamps} if timestamps else {}
    expected = [pipe(each, chunk_length_s=2, **parameters) for each in LONG if len(each) > 32_000]
    compare(model, expected, [each for each in LONG if len(each) > 32_000], parameters)


def languages_of(answer: Any) -> set[Any]:
    return {answer["language"], *(each["language"] for each in answer["chunks"])}


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"num_beams": 1}, marks=pytest.mark.nightly),
        {"num_beams": 2, "return_timestamps": True, "prompt": "a b"},
        pytest.param({"num_beams": 2, "return_timestamps": "word"}, marks=pytest.mark.nightly),
    ],
)
def test_whisper_names_the_language_that_it_detects(
    whisper: tuple[Any, Served], parameters: dict[str, Any]
) -> None:
    pipe, model = whisper
    given = [SOUNDS[0], np.zeros(6_400, np.float32)]
    features = pipe.feature_extractor(given, sampling_rate=16_000, return_tensors="pt")
    tokens = pipe.model.detect_language(features["input_features"])
    codes = pipe.tokenizer.convert_ids_to_tokens(tokens.tolist())
    expected = [{"<|en|>": "english", "<|de|>": "german"}[code] for code in codes]
    assert len(set(expected)) == 2
    texts = [encoded(file_of(each)) for each in given]
    found = model.ask(texts, return_language=True, **parameters)
    assert [languages_of(each) for each in found] == [{name} for name in expected]
    plain = model.ask(texts, **parameters)
    assert [pairs(each)["text"] for each in found] == [each["text"] for each in plain]
    asked = model.ask(texts, return_language=True, language="de", **parameters)
    assert [languages_of(each) for each in asked] == [{"german"}] * len(texts)


def test_a_seed_makes_sampling_repeatable(whisper: tuple[Any, Served]) -> None:
    _, model = whisper
    sampled = {"temperature": 1.0, "num_beams": 1}
    first = model.ask(TEXTS[0], seed=3, **sampled)
    assert model.ask([TEXTS[1], TEXTS[0]], seed=3, **sampled)[1] == first
    assert model.ask(TEXTS[0], seed=4, **sampled) != first


def test_a_prompt_comes_before_the_text(whisper: tuple[Any, Served]) -> None:
    _, model = whisper
    found = [model.ask(TEXTS[1], prompt=prompt) for prompt in ("a b c", "h " * 1_000)]
    assert all(each.keys() == {"text"} for each in found)
    assert model.refuse(TEXTS[1], prompt="<|en|>")[0] == 400


@pytest.mark.parametrize(
    ("parameters", "status", "facts"),
    [
        ({"language": "klingon"}, 400, ["klingon", "language"]),
        ({"language": "fr"}, 400, ["fr", "language"]),
        ({"return_timestamps": "char"}, 422, []),
        ({"max_new_tokens": 33}, 413, ["32"]),
        ({"chunk_length_s": 3}, 413, ["2"]),
        ({"chunk_length_s": 2, "stride_length_s": 1}, 400, []),
        ({"chunk_length_s": 2, "stride_length_s": 0.9}, 413, []),
    ],
)
def test_what_whisper_cannot_do_is_refused(
    whisper: tuple[Any, Served], parameters: Any, status: int, facts: list[str]
) -> None:
    code, message = whisper[1].refuse(TEXTS[0], **parameters)
    assert (code, message) == (status, Sentence(*facts))


@pytest.mark.parametrize(
    "parameters", [{"language": "en"}, {"num_beams": 2}, {"return_timestamps": True}]
)
def test_what_a_ctc_model_cannot_do_is_refused(
    served: Callable[..., Served], parameters: Any
) -> None:
    assert served(MODE).refuse(TEXTS[0], **parameters)[0] == 422


def test_long_audio_is_read_in_chunks_that_a_forward_takes(served: Callable[..., Served]) -> None:
    text = encoded(file_of(LONG[0]))
    model = served(MODE, max_batch_samples=32_000)
    assert model.ask(text) == served(MODE).ask(text, chunk_length_s=2)
    assert model.refuse(text, chunk_length_s=2.5)[0] == 413


def test_a_deadline_ends_a_text(whisper: tuple[Any, Served]) -> None:
    steps = iter([0.0] * 8)
    late = Deadline(1.0, lambda: next(steps, 2.0))
    (outcome,) = whisper[1].engine.predict([Request(TEXTS[0])], Meter(), late)
    assert outcome.status == 503


@pytest.fixture(scope="module")
def moonshine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Served]:
    folder = sounds.write_moonshine(tmp_path_factory.mktemp("moonshine") / "model")
    return folder, Served(folder, MODE)


def written(folder: Path, audio: Any, **options: Any) -> str:
    """Return what Moonshine writes, with the maximum of its model card but for short audio."""
    model: Any = transformers.MoonshineForConditionalGeneration.from_pretrained(folder)
    extractor = AutoFeatureExtractor.from_pretrained(folder)
    inputs = extractor(audio, sampling_rate=sounds.RATE, return_tensors="pt")
    most = max(9, int(6.5 * len(audio) / sounds.RATE))
    (ids,) = model.generate(**inputs, **{"max_length": most, **options})
    return str(AutoTokenizer.from_pretrained(folder).decode(ids, skip_special_tokens=True))


@pytest.mark.parametrize(
    "parameters",
    [{}, {"num_beams": 3, "repetition_penalty": 1.3}, {"temperature": 0, "max_new_tokens": 3}],
)
def test_answers_of_moonshine_are_those_of_generate(
    moonshine: tuple[Path, Served], parameters: dict[str, Any]
) -> None:
    folder, model = moonshine
    theirs = {name: value for name, value in parameters.items() if name != "temperature"}
    if "max_new_tokens" in theirs:
        theirs["max_length"] = theirs.pop("max_new_tokens") + 1
    given = [*SOUNDS[:2], LONG[1]]
    expected = [{"text": written(folder, each, **theirs)} for each in given]
    assert len({each["text"] for each in expected}) > 1
    compare(model, expected, given, parameters)


def test_moonshine_reads_long_audio_in_pieces(moonshine: tuple[Path, Served]) -> None:
    folder, model = moonshine
    found = [LONG[0][start : start + length] for start, length in pieces(LONG[0], 32_000)]
    assert len(found) > 2
    texts = [written(folder, each).strip() for each in found]
    expected = {"text": " ".join(text for text in texts if text)}
    assert model.ask(encoded(file_of(LONG[0])), chunk_length_s=2) == expected


def test_pieces_end_at_pauses_and_have_all_samples() -> None:
    audio = np.ones(50_000, np.float32)
    audio[14_400:16_000] = audio[28_500:30_500] = 0.01
    found = pieces(audio, 16_000)
    assert [start for start, _ in found] == [0, 14_400, 28_800, 43_200]
    assert sum(length for _, length in found) == len(audio)
    assert all(1_600 <= length <= 16_000 for _, length in found)


@pytest.mark.parametrize(
    ("parameters", "status", "facts"),
    [
        ({"language": "en"}, 422, ["language"]),
        ({"return_timestamps": True}, 422, ["return_timestamps"]),
        ({"stride_length_s": 1}, 422, ["stride_length_s"]),
        ({"max_new_tokens": 64}, 413, ["64", "63"]),
        ({"chunk_length_s": 31}, 413, ["31", "30"]),
    ],
)
def test_what_moonshine_cannot_do_is_refused(
    moonshine: tuple[Path, Served], parameters: Any, status: int, facts: list[str]
) -> None:
    assert moonshine[1].refuse(TEXTS[0], **parameters) == (status, Sentence(*facts))


def test_moonshine_is_not_exported(moonshine: tuple[Path, Served]) -> None:
    with refused(WrongCheckpoint, "moonshine", "pretrained"):
        _ = moonshine[1].engine.task.graph_inputs


def test_other_models_that_write_are_refused(tmp_path: Path) -> None:
    folder = sounds.write(tmp_path / "model", WHISPER)
    config = transformers.Speech2TextConfig(architectures=["Speech2TextForConditionalGeneration"])
    config.save_pretrained(folder)
    with refused(WrongCheckpoint, "CTC", "Whisper", "Moonshine"):
        Served(folder, MODE)


def test_a_model_of_english_alone_takes_its_language_and_its_task(
    whisper: tuple[Any, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = whisper[1]
    recognizer: Any = model.engine.task.recognizer  # type: ignore[attr-defined]
    base = copy.deepcopy(recognizer.base)
    for name in ("lang_to_id", "task_to_id"):
        delattr(base, name)
    base.is_multilingual = False
    monkeypatch.setattr(recognizer, "base", base)
    plain = model.ask(TEXTS[1])
    assert languages_of(model.ask(TEXTS[1], return_language=True)) == {"english"}
    for given in ({"language": "en"}, {"language": "English"}, {"task": "transcribe"}):
        assert model.ask(TEXTS[1], **given) == plain
    for given in ({"language": "de"}, {"task": "translate"}):
        assert model.refuse(TEXTS[1], **given)[0] == 422
