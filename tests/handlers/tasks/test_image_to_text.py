"""Images to texts: details, and limits of new tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.images import TEXTS
from tests.sentences import Sentence, refused
from tests.serving import Served

MODE = "image_to_text"


def test_details_say_why_a_text_ended(served: Callable[..., Served]) -> None:
    (found,) = served(MODE).ask(TEXTS[0], max_new_tokens=3, details=True)
    details = found["details"]
    assert (details["finish_reason"], details["generated_tokens"]) == ("length", 3)
    assert len(details["tokens"]) == 3


def test_seeded_sampling_repeats(served: Callable[..., Served]) -> None:
    model, sampling = served(MODE), {"do_sample": True, "seed": 7, "max_new_tokens": 8}
    first, other, again = model.ask([TEXTS[0], TEXTS[1], TEXTS[0]], **sampling)
    assert first == again != other


def test_a_text_longer_than_the_decoder_is_refused(served: Callable[..., Served]) -> None:
    assert served(MODE).refuse(TEXTS[0], max_new_tokens=128) == (
        413,
        Sentence("max_new_tokens", "128", "127"),
    )


def test_a_model_that_needs_a_prompt_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", "image_classification")
    with refused(WrongCheckpoint, "AutoModelForImageTextToText"):
        Served(folder, MODE)
