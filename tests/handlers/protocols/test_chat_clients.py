"""The matrix of unmodified chat clients, with a model in this process that calls tools.

Each cell is a test: a client with a protocol answers a text, reads a stream, returns an object of a
schema, loops over two tools, and shows an error of the server as an error of its own class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.e2e.clients import FRAMEWORKS, OLDER_CLIENTS, PYTHON, run_program
from tests.handlers.generation.test_chat import WITH_TOOLS
from tests.http_front import front
from tests.scripted import write
from tests.serving import Served

pytestmark = [pytest.mark.server, pytest.mark.nightly]

ENVIRONMENTS = {
    "openai": PYTHON,
    "anthropic": PYTHON,
    "openai_agents": FRAMEWORKS,
    "pydantic_ai": FRAMEWORKS,
    "langchain": FRAMEWORKS,
    "llama_index": OLDER_CLIENTS,
    "litellm": FRAMEWORKS,
    "instructor": OLDER_CLIENTS,
    "smolagents": FRAMEWORKS,
}
# The class of the error by which a client shows that the server refuses a request.
REFUSALS = {
    ("openai", "chats"): "openai.BadRequestError",
    ("openai", "parsed chats"): "openai.BadRequestError",
    ("openai", "responses"): "openai.BadRequestError",
    ("openai", "stored responses"): "openai.NotFoundError",
    ("anthropic", "messages"): "anthropic.BadRequestError",
    ("openai_agents", "chats"): "openai.BadRequestError",
    ("openai_agents", "responses"): "openai.BadRequestError",
    ("pydantic_ai", "chats"): "pydantic_ai.ModelRequestRejectedError",
    ("pydantic_ai", "responses"): "pydantic_ai.ModelRequestRejectedError",
    ("pydantic_ai", "messages"): "pydantic_ai.ModelRequestRejectedError",
    ("langchain", "chats"): "langchain_openai.OpenAIInvalidRequestError",
    ("langchain", "responses"): "langchain_openai.OpenAIInvalidRequestError",
    ("langchain", "stored responses"): "langchain_openai.OpenAIInvalidRequestError",
    ("langchain", "messages"): "langchain_anthropic.AnthropicInvalidRequestError",
    ("llama_index", "chats"): "openai.BadRequestError",
    ("llama_index", "responses"): "openai.BadRequestError",
    ("litellm", "chats"): "litellm.BadRequestError",
    ("litellm", "vLLM's chats"): "litellm.BadRequestError",
    ("litellm", "responses"): "litellm.BadRequestError",
    ("litellm", "messages"): "litellm.BadRequestError",
    ("instructor", "chats"): "instructor.InstructorRetryException",
    ("instructor", "responses"): "instructor.InstructorRetryException",
    ("instructor", "messages"): "instructor.InstructorRetryException",
    ("smolagents", "chats"): "openai.BadRequestError",
}
# Agents have long prompts.
LENGTH = 16_384
PROMPTS = {"text": "Tell me.", "schema": "Which?", "loop": "Where is it?"}
ANSWER = "The fox is at the river."
EXPECTED = {
    "text": ANSWER,
    "stream": ANSWER,
    "schema": "fox",
    "loop": [ANSWER, "animal", "place"],
}
OBJECT = '{"kind": "fox"}'
CALL = '<tool_call>\n{{"name": "{}", "arguments": {{"{}": "{}"}}}}\n</tool_call>'
# Agents of smolagents call a tool to answer.
FINAL = CALL.format("final_answer", "answer", ANSWER)


def written(prompt: str) -> str:
    """Return what the model writes."""
    if "seen river" in prompt:
        return FINAL if "final_answer" in prompt else ANSWER
    if "seen fox" in prompt:
        return CALL.format("place", "kind", "river")
    if PROMPTS["loop"] in prompt:
        return CALL.format("animal", "kind", "fox")
    if tool := re.search(r"Call (\w+)\.", prompt):
        return CALL.format(tool[1], "kind", "fox")
    return OBJECT if PROMPTS["schema"] in prompt else ANSWER


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the model."""
    folder: Path = tmp_path_factory.mktemp("model") / "model"
    tiny.write(folder, "text_generation", family="GPT2", n_positions=LENGTH)
    path = folder / "tokenizer_config.json"
    settings = {**json.loads(path.read_bytes()), "model_max_length": LENGTH}
    path.write_text(json.dumps(settings))
    model = Served(folder, "text_generation", stored_responses=100)
    model.engine.task.checkpoint.tokenizer.chat_template = WITH_TOOLS
    with pytest.MonkeyPatch.context() as patch:
        write(model, written, patch)
        with front({"m": model}) as address:
            yield f"{address}/m/1.0"


@cache
def answers(url: str, client: str) -> Any:
    """Return what a client gets in each cell of each of its protocols."""
    protocols = [protocol for name, protocol in REFUSALS if name == client]
    urls = {name: url if name == "messages" else f"{url}/v1" for name in protocols}
    program = f"matrix/with_{client}"
    return run_program(ENVIRONMENTS[client], program, {"urls": urls, "prompts": PROMPTS})


@pytest.mark.parametrize("cell", [*EXPECTED, "refusal"])
@pytest.mark.parametrize(("client", "protocol"), REFUSALS)
def test_a_cell_of_the_matrix(url: str, client: str, protocol: str, cell: str) -> None:
    found = answers(url, client)[protocol][cell]
    if cell != "refusal":
        # instructor streams objects.
        by_schema = (client, cell) == ("instructor", "stream")
        assert found == {"value": EXPECTED["schema" if by_schema else cell]}
        return
    expected = REFUSALS[client, protocol]
    assert found["class"] == expected, found
    fact = "resp_" if expected == "openai.NotFoundError" else "temperature is 9"
    assert fact in found["message"]
