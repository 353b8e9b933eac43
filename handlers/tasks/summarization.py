"""Summarization: a text to a shorter one.

{"inputs": "Nina sings in the bar near the river. Tom …", "parameters": {"max_new_tokens": 20}}
-> [{"summary_text": "Nina sings in the bar."}]
"""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from ..types.model_info import Generation, ModelOutputs, Rows, TaskDescription, Wire
from .bases.generated_text import Details
from .text2text_generation import TextToTextTask


class Summary(TypedDict):
    """One summary of a text."""

    summary_text: str
    details: NotRequired[Details]


class Task(TextToTextTask):
    """Summaries; answers as the summarization pipeline of transformers 4 does."""

    pipeline = "summarization"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=Summary | list[Summary],
            example={
                "inputs": (
                    "Nina sings in the old bar near the river. Her brother Tom lives in New York."
                ),
                "parameters": {"max_new_tokens": 8},
            },
            result_columns=("summary_text",),
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
        rows=Rows(supports_packing=False),
        generation=Generation(texts=True, is_encoder_decoder=True),
    )
