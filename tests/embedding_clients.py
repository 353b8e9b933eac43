"""Unmodified clients of other servers with a model of embeddings and one of rankings.

Each program of `tests/clients/` runs in its own environment. Its answers are those to a plain
request. `test_clients.py` runs them against models in this process, and
`tests/e2e/test_other_modes.py` against a real TorchServe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpx

from tests.e2e.clients import FRAMEWORKS, run_client, run_program
from tests.serving import differences

EMBEDDING, RANKING = "sentence_embedding", "sentence_ranking"
TEXTS = ["Nina sings in the bar.", "A dull film."]
QUERY = "Who sings?"
DOCUMENTS = ["It rains today.", "Nina sings in the bar.", "A dull film."]
EMPTY = {"status": 400, "message": "documents[0] is empty; send a text."}


@dataclass(frozen=True)
class EmbeddingServer:
    """A server with both models.

    Attributes:
        url: the URL before the names of models.
        tolerance: by how much numbers may differ that batches of other rows give.
    """

    url: str
    tolerance: float

    def ask(self, mode: str, inputs: Any, **parameters: Any) -> Any:
        """Return the answer to a plain request."""
        return self._post(mode, {"inputs": inputs, "parameters": parameters})

    def embed(self, **parameters: Any) -> list[Any]:
        """Return the vector of each text."""
        return [self.ask(EMBEDDING, text, **parameters) for text in TEXTS]

    def check(self, found: Any, expected: Any) -> None:
        """Check that two answers are the same."""
        differing = differences(found, expected, self.tolerance)
        assert not differing, differing[:5]

    @cached_property
    def ids(self) -> list[list[int]]:
        """The token ids of each text."""
        answer = self._post(f"{EMBEDDING}/1.0/tokenize", {"inputs": TEXTS})
        return [[token["id"] for token in tokens] for tokens in answer]

    @cached_property
    def ranking(self) -> list[dict[str, Any]]:
        """The two best documents."""
        inputs = {"query": QUERY, "documents": DOCUMENTS}
        return list(self.ask(RANKING, inputs, top_n=2, return_documents=True))

    @cached_property
    def embeddings(self) -> Any:
        """The answers to OpenAI's, Hugging Face's and Triton's clients."""
        models = httpx.get(f"{self.url}/{EMBEDDING}/1.0/v1/models", trust_env=False).json()
        return run_client(
            "embedding_client",
            url=f"{self.url}/{EMBEDDING}",
            model_name=models["data"][0]["id"],
            texts=TEXTS,
            ids=self.ids,
        )

    def _post(self, path: str, body: Any) -> Any:
        answer = httpx.post(f"{self.url}/{path}", json=body, trust_env=False, timeout=300)
        assert answer.status_code == 200, answer.text
        return answer.json()


def openai_embeds(server: EmbeddingServer) -> None:
    found, expected = server.embeddings, server.embed()
    server.check(found["openai"], expected)
    server.check(found["ids"], expected)
    server.check(found["base64"], expected[0])
    server.check(found["dimensions"], server.embed(dimensions=4))
    tokens = sum(map(len, server.ids))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def openai_shows_which_text_is_wrong(server: EmbeddingServer) -> None:
    mistake = server.embeddings["mistake"]
    assert mistake["status"] == 400
    assert mistake["body"]["message"] == "input[2] is empty; send a text."


def hugging_face_embeds(server: EmbeddingServer) -> None:
    server.check(server.embeddings["hugging_face"], server.embed(normalize=True)[0])


def triton_embeds(server: EmbeddingServer) -> None:
    server.check(server.embeddings["triton"], server.embed())


def cohere_embeds(server: EmbeddingServer) -> None:
    base_url = f"{server.url}/{EMBEDDING}/1.0"
    found = run_client("cohere_client", base_url=base_url, texts=TEXTS)
    server.check(found["first"], server.embed())
    server.check(found["by_type"]["float"], server.embed())
    for kind in ("int8", "ubinary"):
        assert found["by_type"][kind] == server.embed(precision=kind)
    assert all(isinstance(each, str) for each in found["by_type"]["base64"])
    assert found["tokens"] == sum(map(len, server.ids))
    assert found["mistake"]["message"] == "texts[2] is empty; send a text."


def cohere_ranks(server: EmbeddingServer) -> None:
    base_url = f"{server.url}/{RANKING}/1.0"
    found = run_client("cohere_client", base_url=base_url, query=QUERY, documents=DOCUMENTS)
    expected = [[each["index"], each["score"]] for each in server.ranking]
    server.check(found["first"], expected)
    server.check(found["second"], expected)
    assert found["documents"] == [each["text"] for each in server.ranking]
    assert found["mistake"] == EMPTY


def langchain_embeds_and_ranks(server: EmbeddingServer) -> None:
    # What the program asks of the class for Hugging Face.
    errors = _check_framework(server, "langchain_client", normalizing="hugging_face")
    assert errors.keys() == {"openai", "hugging_face", "cohere"}
    assert all("is empty; send a text." in each for each in errors.values()), errors


def llama_index_embeds_and_ranks(server: EmbeddingServer) -> None:
    # TEI's default.
    errors = _check_framework(server, "llama_index_client", normalizing="tei")
    assert "dimensions is 1,000,000" in errors["openai"]


def haystack_embeds_and_ranks(server: EmbeddingServer) -> None:
    errors = _check_framework(server, "haystack_embedding_client")
    assert "dimensions is 1,000,000" in errors["openai"]


def litellm_embeds_and_ranks(server: EmbeddingServer) -> None:
    _check_framework(server, "litellm_client")


def _check_framework(
    server: EmbeddingServer, program: str, normalizing: str = ""
) -> dict[str, str]:
    """Check the answers that a program gets, and return the errors."""
    job = {
        "embed": {"url": f"{server.url}/{EMBEDDING}", "texts": TEXTS},
        "rerank": {"url": f"{server.url}/{RANKING}", "query": QUERY, "documents": DOCUMENTS},
    }
    found = run_program(FRAMEWORKS, program, job)
    plain, unit = server.embed(), server.embed(normalize=True)
    for name, (documents, query) in found["embeddings"].items():
        expected = unit if name == normalizing else plain
        server.check([documents, query], [expected, expected[0]])
    best = [[each["text"], each["score"]] for each in server.ranking]
    for ranked in found["rankings"].values():
        server.check(ranked, best)
    errors: dict[str, str] = found.get("errors", {})
    return errors


CHECKS = (
    openai_embeds,
    openai_shows_which_text_is_wrong,
    hugging_face_embeds,
    triton_embeds,
    cohere_embeds,
    cohere_ranks,
    langchain_embeds_and_ranks,
    llama_index_embeds_and_ranks,
    haystack_embeds_and_ranks,
    litellm_embeds_and_ranks,
)
