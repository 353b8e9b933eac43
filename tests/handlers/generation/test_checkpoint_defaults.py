"""What a checkpoint's generation_config.json sets is bounded as what a request sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from tests import sounds
from tests.modes import cases
from tests.sentences import refused
from tests.serving import Served
from tests.tiny_documents import write_donut
from tests.tiny_multimodal import write_blip

WHISPER = "WhisperForConditionalGeneration"
FILE = "generation_config.json"
FEW = {"max_new_tokens": 4}


def write_whisper(folder: Path, *_: Any) -> None:
    """Write a tiny Whisper."""
    folder.rmdir()
    sounds.write(folder, WHISPER)


# Modes whose models generate, and how their checkpoints are made.
GENERATING: dict[str, Callable[..., Any] | None] = {
    "text_generation": None,
    "text2text_generation": None,
    "image_to_text": None,
    "automatic_speech_recognition": write_whisper,
    "visual_question_answering": write_blip,
    "document_question_answering": write_donut,
}


@pytest.fixture
def changed(checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that returns a checkpoint with other values in the file."""

    def change(mode: str, **values: Any) -> Path:
        folder, write = tmp_path / mode, GENERATING[mode]
        if write is None:
            copytree(checkpoint(mode), folder)
        else:
            folder.mkdir()
            write(folder, {}, 0)
        file = folder / FILE
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        file.write_text(json.dumps({**known, **values}), encoding="utf-8")
        return folder

    return change


@pytest.mark.parametrize("mode", GENERATING)
def test_the_number_of_beams_is_bounded(changed: Callable[..., Path], mode: str) -> None:
    with refused(WrongCheckpoint, FILE, "num_beams", 10_000, 32):
        Served(changed(mode, num_beams=10_000), mode)


@pytest.mark.parametrize(
    "values",
    [
        {"num_beams": 100, "num_return_sequences": 100},
        {"num_beams": 0},
        {"repetition_penalty": 0.001},
        {"length_penalty": 1e9, "num_beams": 2},
        {"no_repeat_ngram_size": -1},
        {"max_new_tokens": 10**12},
        {"do_sample": True, "temperature": 0.0},
        {"do_sample": True, "top_k": -2},
        {"prompt_lookup_num_tokens": 3},
        {"do_sample": True, "top_p": 1.5},
        {"do_sample": True, "min_p": -1.0},
        {"stop_strings": ["a"]},
        {"num_beam_groups": 2, "num_beams": 2},
        {"dola_layers": "low"},
        {"penalty_alpha": 0.6, "top_k": 4},
        {"max_time": 0},
        {"max_time": 1e9},
        {"is_assistant": True},
        {"prefill_chunk_size": 0},
        {"top_h": 7},
        {"exponential_decay_length_penalty": 5},
        {"exponential_decay_length_penalty": ["a", 2.0]},
        {"bad_words_ids": 5},
        {"bad_words_ids": [[-1]]},
        {"eos_token_id": "a"},
        {"eos_token_id": [1, None]},
        {"sequence_bias": [[1, 2.0]]},
        {"sequence_bias": []},
        {"sequence_bias": [[[], 2.0]]},
        {"sequence_bias": [[[5], "x"]]},
        {"bad_words_ids": []},
        {"bad_words_ids": [[]]},
        {"forced_eos_token_id": []},
        {"bos_token_id": "a"},
        {"no_repeat_ngram_size": 1.5},
        {"min_length": 2.5},
        {"min_new_tokens": 2.5},
        {"prefill_chunk_size": 2.5},
        {"low_memory": True},
    ],
    ids=lambda values: "-".join(values),
)
def test_another_value_that_no_request_may_have_is_refused(
    changed: Callable[..., Path], values: dict[str, Any]
) -> None:
    name = next(name for name in values if name != "do_sample")
    with refused(WrongCheckpoint, FILE, name):
        Served(changed("text_generation", **values), "text_generation")


NAMES_A_TOKEN: dict[str, Callable[[int], Any]] = {
    "bad_words_ids": lambda token: [[5], [5, token]],
    "begin_suppress_tokens": lambda token: [token],
    "decoder_start_token_id": lambda token: token,
    "eos_token_id": lambda token: [5, token],
    "forced_bos_token_id": lambda token: token,
    "forced_eos_token_id": lambda token: [token],
    "sequence_bias": lambda token: [[[5, token], 2.0]],
    "suppress_tokens": lambda token: [token],
}


@pytest.mark.parametrize("mode", GENERATING)
@pytest.mark.parametrize("name", NAMES_A_TOKEN)
def test_a_token_that_is_in_no_vocabulary_is_refused(
    changed: Callable[..., Path], mode: str, name: str
) -> None:
    with refused(WrongCheckpoint, FILE, name, 99_999):
        Served(changed(mode, **{name: NAMES_A_TOKEN[name](99_999)}), mode)


def test_the_last_token_of_the_vocabulary_may_be_named(changed: Callable[..., Path]) -> None:
    """The tiny model has 400."""
    assert Served(changed("text_generation", suppress_tokens=[399]), "text_generation").ask("Ada")


def test_the_token_behind_the_last_one_is_refused(changed: Callable[..., Path]) -> None:
    with pytest.raises(WrongCheckpoint, match="400"):
        Served(changed("text_generation", suppress_tokens=[400]), "text_generation")


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0.0},
        {"top_k": -1, "top_p": 1.5},
        {"top_k": -1, "do_sample": True},
        {"return_dict_in_generate": True, "output_scores": True},
        {"num_return_sequences": 2, "num_beams": 4},
        {"early_stopping": "never", "num_beams": 4},
        {"top_k": 5, "top_p": 0.9, "temperature": 0.7},
        {"max_length": 1e30},
        {"max_length": 10**30},
        {"exponential_decay_length_penalty": [1, 2.0]},
        {"bad_words_ids": [[5]], "sequence_bias": [[[5], 2.0]], "suppress_tokens": [5]},
        {"suppress_tokens": [], "begin_suppress_tokens": [], "eos_token_id": []},
        {"cache_implementation": "static"},
        {"cache_implementation": "quantized", "use_cache": False},
        {"bos_token_id": 99_999},
    ],
    ids=lambda values: "-".join(values),
)
def test_a_value_that_means_nothing_here_does_no_harm(
    changed: Callable[..., Path], values: dict[str, Any]
) -> None:
    """Requests are greedy, and those that sample have the defaults of `generate` then."""
    model = Served(changed("text_generation", **values), "text_generation")
    (text,) = model.ask("Ada", **FEW)
    assert text["generated_text"].startswith("Ada")
    assert len(model.ask("Ada", do_sample=True, seed=1, num_return_sequences=2, **FEW)) == 2


@pytest.mark.parametrize(
    ("mode", "values", "facts"),
    [
        ("text_generation", {}, ["optimum-quanto"]),
        ("text_generation", {"cache_config": {"backend": "hqq"}}, ["hqq"]),
        ("text_generation", {"cache_config": {"backend": "x"}}, ["'x'"]),
        ("text2text_generation", {}, ["encoder-decoders"]),
    ],
)
def test_a_quantized_cache_that_transformers_cannot_make_is_refused(
    changed: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    values: dict[str, Any],
    facts: list[str],
) -> None:
    monkeypatch.setattr(
        "hf_serve.handlers.generation.checkpoint_defaults.is_installed", lambda _: False
    )
    folder = changed(mode, cache_implementation="quantized", **values)
    with refused(WrongCheckpoint, FILE, "cache_implementation", *facts):
        Served(folder, mode)


@pytest.mark.parametrize("name", ["offloaded", "offloaded_static"])
def test_a_cache_that_is_offloaded_needs_a_gpu(
    changed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    with refused(WrongCheckpoint, FILE, "cache_implementation", name, "GPU"):
        Served(changed("text_generation", cache_implementation=name), "text_generation")


def test_a_decoder_without_a_token_to_begin_with_is_refused(changed: Callable[..., Path]) -> None:
    mode = "text2text_generation"
    neither = {"decoder_start_token_id": None, "bos_token_id": None}
    with refused(WrongCheckpoint, FILE, "decoder_start_token_id", "bos_token_id"):
        Served(changed(mode, **neither), mode)


def test_a_decoder_may_begin_with_the_token_of_the_beginning(changed: Callable[..., Path]) -> None:
    mode = "text2text_generation"
    folder = changed(mode, decoder_start_token_id=None, bos_token_id=3)
    assert Served(folder, mode).ask("Ada", **FEW)
    (folder / FILE).write_text(json.dumps({"bos_token_id": 99_999}), encoding="utf-8")
    with refused(WrongCheckpoint, FILE, "bos_token_id", 99_999):
        Served(folder, mode)


@pytest.mark.parametrize("mode", ["visual_question_answering", "document_question_answering"])
def test_the_beams_of_an_answer_are_at_most_max_sequences(
    changed: Callable[..., Path], mode: str
) -> None:
    folder = changed(mode, num_beams=4, num_return_sequences=3)
    with refused(WrongCheckpoint, FILE, "num_beams", 4, "max_sequences", 3):
        Served(folder, mode, max_sequences=3)
    question = cases("visual_question_answering").inputs[0]
    ((status, _),) = Served(folder, mode, max_sequences=4).post({"inputs": question})
    assert status == 200
