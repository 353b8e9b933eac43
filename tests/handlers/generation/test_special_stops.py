"""Texts end at stop strings with special tokens, and at token ids, on every route and engine.

A token that the tiny model writes becomes a special one, so that texts leave it out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.generation.detokenization import WITH_SPECIAL_TOKENS, IncrementalDecoder
from hf_serve.handlers.generation.stopping import StopTracker
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from tests import tiny
from tests.sentences import Sentence
from tests.serving import Served, read_json, stream_into
from tests.tiny_tokenizers import write_gpt2

MODE = "text_generation"
END = "<|im_end|>"
PROMPT = "Once upon a time"
ENGINES: dict[str, dict[str, Any]] = {
    "batches": {},
    "pretrained": {"continuousBatching": True},
    "openvino": {"continuousBatching": True, "save_mode": "openvino"},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_gpt2(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([END, "<|im_start|>"], special_tokens=True)
    return tokenizer


def written(tokenizer: Any, text: str, *stops: str, **decoding: Any) -> tuple[str, str | None]:
    """Return the text of some tokens and its finish reason; a stream has the same text."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    decoder = IncrementalDecoder(tokenizer, **decoding)
    followed = StopTracker(decoder, ids[:0], stops, frozenset(), 999)
    parts: list[str] = []
    stream, state = stream_into(parts), followed.start()
    for token in ids:
        state = followed.add(state, token)
        followed.emit(state, stream)
    assert state.finish_reason is None or "".join(parts) == state.text
    assert followed.read(ids).text == state.text
    return state.text, state.finish_reason


@pytest.mark.parametrize(
    ("text", "stop", "found"),
    [
        (f"Who sings{END} in the bar", END, "Who sings"),
        (f"Who{END} sings{END}<|im_start|>bar", f"{END}<|im_start|>", "Who sings"),
        (f"Who{END} sings{END} in the bar", f"sings{END}", "Who "),
        (f"Who sings{END} in the bar", f"{END} in", "Who sings"),
        (f"Who sings{END} in the bar", f"s{END} i", "Who sing"),
        (f"Who{END} in the{END} bar", f"in the{END}", "Who "),
    ],
)
def test_a_stop_string_may_have_special_tokens(
    tokenizer: Any, text: str, stop: str, found: str
) -> None:
    assert written(tokenizer, text, "never", stop) == (found, "stop_sequence")


@pytest.mark.parametrize("stop", ["im_end", "|>", f"{END}x", f"x{END}", "Who in"])
def test_another_stop_string_is_not_found_in_the_name_of_a_token(tokenizer: Any, stop: str) -> None:
    assert written(tokenizer, f"Who sings{END} in the", stop) == ("Who sings in the", None)


def test_a_text_with_its_special_tokens_ends_at_them_too(tokenizer: Any) -> None:
    shown = {"settings": WITH_SPECIAL_TOKENS}
    text = f"Who{END} sings<|im_start|> in"
    assert written(tokenizer, text, "<|im_start|>", **shown) == (f"Who{END} sings", "stop_sequence")


@dataclass(frozen=True)
class Ending:
    """A checkpoint one of whose tokens is a special one.

    Attributes:
        folder: its folder.
        before: the text before that token in the answer to the prompt.
        token: the id of the token.
    """

    folder: Path
    before: str
    token: int


@pytest.fixture(scope="module")
def special(tmp_path_factory: pytest.TempPathFactory) -> Ending:
    folder = tiny.write(tmp_path_factory.mktemp("special"), MODE)
    (answer,) = Served(folder, MODE).ask(PROMPT, max_new_tokens=12, details=True)
    tokens, file = answer["details"]["tokens"], folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    merged = {part for merge in content["model"]["merges"] for part in merge}
    names = {number: name for name, number in content["model"]["vocab"].items()}
    place = next(at for at in range(2, 12) if names[tokens[at]["id"]] not in merged)
    token = tokens[place]["id"]
    assert token not in [each["id"] for each in tokens[:place]]
    content["model"]["vocab"][END] = content["model"]["vocab"].pop(names[token])
    content["added_tokens"].append({**content["added_tokens"][0], "id": token, "content": END})
    file.write_text(json.dumps(content), encoding="utf-8")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return Ending(folder, "".join(each["text"] for each in tokens[:place]), token)


class Story:
    """A model that writes a special token."""

    prompt, name = PROMPT, END

    def __init__(self, model: Served, special: Ending) -> None:
        self.model, self.before, self.token = model, special.before, special.token

    def post(self, path: str, **body: Any) -> Any:
        headers = {"url_path": path, "Content-Type": "application/json"}
        request = HttpRequest({"body": body}, headers)
        (answer,) = self.model.dispatcher.dispatch([request], Meter())
        assert answer.status == 200, answer.body
        return answer


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.openvino if name == "openvino" else ())
        for name in ENGINES
    ],
)
def story(request: Any, special: Ending) -> Story:
    settings = dict(ENGINES[request.param])
    continuous = {"continuousBatching": settings.pop("continuousBatching", False)}
    section = {"mode": MODE, "dtype": "float32", **settings}
    config = ModelConfig.parse({**continuous, "handler": section})
    if request.param == "openvino":
        formats.export(special.folder, config, special.folder)
    return Story(Served.of(Engine.load(special.folder, config)), special)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["", "generate", "v1/completions", "v1/chat/completions"])
def test_every_route_ends_a_text_at_the_name_of_a_special_token(
    story: Story, path: str, stream: bool
) -> None:
    assert ending(story, path, stream, stop=[story.name]) == story.before


@pytest.mark.parametrize("path", ["", "generate", "v1/completions", "v1/chat/completions"])
def test_every_route_ends_a_text_at_a_token_id(story: Story, path: str) -> None:
    assert ending(story, path, False, stop_token_ids=[story.token]) == story.before


def ending(story: Story, path: str, stream: bool, **settings: Any) -> str:
    """Return the new text of an answer, which has to have ended before its last token."""
    if path.startswith("v1"):
        messages = [{"role": "user", "content": story.prompt}]
        inputs: Any = {"messages": messages} if "chat" in path else {"prompt": story.prompt}
        answer = story.post(path, **inputs, max_tokens=12, stream=stream, **settings)
        choices = [part["choices"][0] for part in parts(answer, stream)]
        assert choices[-1]["finish_reason"] == "stop"
        texts = (each.get("delta", each.get("message", each)) for each in choices)
        return "".join(text.get("content", text.get("text", "")) for text in texts)
    parameters = {"max_new_tokens": 12, "return_full_text": False, "details": True, **settings}
    answer = story.post(
        path, inputs=story.prompt, parameters=parameters, stream=stream and not path
    )
    last = parts(answer, stream and not path)[-1]
    (result,) = last if isinstance(last, list) else [last]
    assert result["details"]["finish_reason"] in ("stop_sequence", "eos_token")
    return str(result["generated_text"])


def parts(answer: Any, stream: bool) -> list[Any]:
    """Return the events of a stream, or the whole answer."""
    if not stream:
        return [read_json(answer.body)]
    lines = answer.body.decode().split("\n\n")
    return [
        json.loads(line.removeprefix("data:")) for line in lines if line and "[DONE]" not in line
    ]


def test_hugging_faces_eos_token_id_takes_the_place_of_the_checkpoints(story: Story) -> None:
    model, few = story.model, {"max_new_tokens": 12, "return_full_text": False}
    for given in (story.token, [story.token]):
        (answer,) = model.ask(story.prompt, eos_token_id=given, details=True, **few)
        assert answer["generated_text"] == story.before
        assert answer["details"]["finish_reason"] == "eos_token"
    status, text = model.refuse(story.prompt, eos_token_id=99_999)
    assert (status, text) == (400, Sentence("eos_token_id", 99_999))


def test_a_text_goes_on_after_the_end_token_where_it_is_ignored(story: Story) -> None:
    model, few = story.model, {"max_new_tokens": 12, "return_full_text": False}
    checkpoint_ends = {"eos_token_id": story.token, "details": True, **few}
    (answer,) = model.ask(story.prompt, ignore_eos=True, **checkpoint_ends)
    details = answer["details"]
    assert (details["generated_tokens"], details["finish_reason"]) == (12, "length")


@pytest.mark.parametrize("beams", [1, 2])
def test_a_text_goes_on_after_the_checkpoints_own_end_token(
    served: Callable[..., Served], beams: int
) -> None:
    model = served(MODE)
    end = model.engine.task.checkpoint.tokenizer.eos_token_id
    ends = {"logit_bias": {end: 100}, "num_beams": beams, "max_new_tokens": 5, "details": True}
    for ignored, tokens in ((False, 1), (True, 5)):
        (answer,) = model.ask(PROMPT, ignore_eos=ignored, **ends)
        assert answer["details"]["generated_tokens"] == tokens
    (answer,) = model.ask(PROMPT, eos_token_id=[end + 1], **ends)
    assert answer["details"]["generated_tokens"] == 5


def test_special_tokens_are_shown_where_the_request_asks_for_them(story: Story) -> None:
    few = {"max_new_tokens": 12, "return_full_text": False}
    (hidden,) = story.model.ask(story.prompt, **few)
    (shown,) = story.model.ask(story.prompt, skip_special_tokens=False, **few)
    assert story.name not in hidden["generated_text"] and story.name in shown["generated_text"]


def test_a_text_with_a_grammar_ends_where_that_does(story: Story) -> None:
    grammar = {"grammar": {"type": "regex", "value": "a+"}}
    for name, value in (("ignore_eos", True), ("eos_token_id", story.token)):
        status, text = story.model.refuse(story.prompt, **grammar, **{name: value})
        assert (status, text) == (422, Sentence(name, "grammar"))
