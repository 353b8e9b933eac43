"""Hugging Face's own client: each task, as a whole and as a stream."""

from __future__ import annotations

import json
import sys
from typing import Any

from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError, TextGenerationError


def main(job: dict[str, Any]) -> dict[str, Any]:
    url, texts = job["url"], job["texts"]
    labels = InferenceClient(f"{url}/sequence_classification")
    tokens = InferenceClient(f"{url}/token_classification")
    answers = InferenceClient(f"{url}/question_answering")
    version = InferenceClient(base_url=f"{url}/text_generation/1.0")
    return {
        "label": labels.text_classification(texts["label"]),
        "labels": labels.text_classification(texts["label"], top_k=2, function_to_apply="sigmoid"),
        "tokens": tokens.token_classification(texts["tokens"]),
        "entities": tokens.token_classification(
            texts["tokens"], aggregation_strategy="simple", ignore_labels=["O"], stride=5
        ),
        "answer": answers.question_answering(**texts["question"]),
        "answers": answers.question_answering(**texts["question"], top_k=3, max_answer_len=4),
        "mistake": mistake_of(labels),
        "refused": refusal_of(version),
        **generated(InferenceClient(f"{url}/text_generation"), texts["prompt"]),
        "version": generated(version, texts["prompt"]),
        **chatted(InferenceClient(base_url=f"{url}/text_generation/1.0/v1"), job["messages"]),
    }


def generated(client: InferenceClient, prompt: str) -> dict[str, Any]:
    few: dict[str, Any] = {"max_new_tokens": 20}
    stop: dict[str, Any] = {**few, "stop": ["."], "return_full_text": False}
    return {
        "text": client.text_generation(prompt, **few),
        "details": client.text_generation(prompt, details=True, **stop),
        "stream": list(client.text_generation(prompt, stream=True, **few)),
        "events": list(client.text_generation(prompt, stream=True, details=True, **stop)),
    }


def chatted(client: InferenceClient, messages: Any) -> dict[str, Any]:
    few: dict[str, Any] = {"max_tokens": 20, "temperature": 0.0}
    chunks = client.chat_completion(messages, stream=True, **few)
    same = client.chat.completions.create(messages=messages, model="m", **few)
    return {
        "chat": client.chat_completion(messages, **few).choices[0].message.content,
        "same_chat": same.choices[0].message.content,
        "chunks": [chunk.choices[0].delta.content for chunk in chunks],
    }


def refusal_of(client: InferenceClient) -> str:
    """Return the class of the error for a text that is not generated."""
    try:
        client.text_generation("")
    except TextGenerationError as error:
        return type(error).__name__
    return ""


def mistake_of(client: InferenceClient) -> dict[str, Any]:
    """Return the error that the client raises for a request that is refused."""
    try:
        client.text_classification("")
    except HfHubHTTPError as error:
        error_response = {"status": error.response.status_code, "body": error.response.json()}
        return {**error_response, "shown": str(error)}
    return {}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
