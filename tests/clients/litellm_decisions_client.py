"""LiteLLM's moderations and decisions."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# Before the import: it asks the network for the prices of models.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm


def main(job: dict[str, Any]) -> dict[str, Any]:
    at = {"api_base": job["base_url"], "api_key": "none"}
    moderation = litellm.moderation(input=job["input"], model="m", **at)
    decision = litellm.decisions(
        model="openai/m", input=job["input"], questions=job["questions"], **at
    )
    return {"moderation": moderation.model_dump(), "decision": decision.model_dump()}


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
