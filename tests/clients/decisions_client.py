"""OpenAI's own client: moderations and decisions."""

from __future__ import annotations

import json
import sys
from typing import Any

import openai
from openai import OpenAI


def main(job: dict[str, Any]) -> dict[str, Any]:
    client = OpenAI(base_url=job["base_url"], api_key="none", max_retries=0)
    if "questions" in job:
        return {"decisions": decided(client, job)}
    return {"moderations": moderated(client, job["texts"])}


def moderated(client: OpenAI, texts: list[str]) -> dict[str, Any]:
    """Return the results of several texts, of one alone, and an error."""
    several = client.moderations.create(model="m", input=texts)
    (single,) = client.moderations.create(input=texts[0]).results
    try:
        client.moderations.create(input=[*texts, ""])
    except openai.BadRequestError as error:
        mistake = error.body
    return {
        "several": [each.to_dict() for each in several.results],
        "flagged": [each.flagged for each in several.results],
        "single": single.category_scores.to_dict(),
        "mistake": mistake,
    }


def decided(client: OpenAI, job: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of questions, and an error."""
    decision = client.decisions.create(model="m", input=job["input"], questions=job["questions"])
    try:
        client.decisions.create(model="m", input="", questions=job["questions"])
    except openai.BadRequestError as error:
        mistake = error.body
    return {
        "types": [type(each).__name__ for each in decision.answers],
        "answers": [each.to_dict() for each in decision.answers],
        "tokens": decision.usage.total_tokens,
        "mistake": mistake,
    }


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
