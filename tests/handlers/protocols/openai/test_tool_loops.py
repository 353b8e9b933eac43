"""Agents of unmodified libraries, with a model in this process that calls two tools and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import tiny
from tests.e2e.clients import FRAMEWORKS, OLDER_CLIENTS, PYTHON, run_program
from tests.handlers.generation.test_chat import WITH_TOOLS
from tests.http_front import front
from tests.scripted import write
from tests.serving import Served

pytestmark = [pytest.mark.server, pytest.mark.nightly]
CALL = '<tool_call>\n{{"name": "{}", "arguments": {{"kind": "{}"}}}}\n</tool_call>'
ANSWER = "The fox is at the river."
# What the model writes after the result of each tool.
SCRIPT = {"seen river": ANSWER, "seen fox": CALL.format("place", "river")}
FIRST = CALL.format("animal", "fox")
LIBRARIES = {
    "openai": PYTHON,
    "openai_agents": FRAMEWORKS,
    "pydantic_ai": FRAMEWORKS,
    "langchain": FRAMEWORKS,
    "llama_index": OLDER_CLIENTS,
    "litellm": FRAMEWORKS,
    "smolagents": FRAMEWORKS,
}


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("model") / "model"
    tiny.write(folder, "text_generation", family="GPT2", n_positions=1024)
    model = Served(folder, "text_generation")
    tokenizer = model.engine.task.checkpoint.tokenizer
    tokenizer.chat_template = WITH_TOOLS

    def text(prompt: str) -> str:
        return next((answer for seen, answer in SCRIPT.items() if seen in prompt), FIRST)

    with pytest.MonkeyPatch.context() as patch:
        write(model, text, patch)
        with front({"m": model}) as url:
            yield f"{url}/m/1.0/v1"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_loop_of_two_tools_ends_with_an_answer(base_url: str, library: str) -> None:
    job: dict[str, Any] = {"library": library, "base_url": base_url, "prompt": "Where is it?"}
    found = run_program(LIBRARIES[library], "tool_loop_client", job)
    assert found == {"called": ["animal", "place"], "answer": ANSWER}
