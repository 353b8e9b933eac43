"""Names of tasks on the hub, in transformers' pipelines and in containers, and their modes."""

from __future__ import annotations

from collections.abc import Sequence

from .messages import suggest

# The modes of the hub's tasks, whose names have hyphens. Those that are not here have a mode of the
# same name. Source: https://huggingface.co/tasks
MODES_OF_HUB_TASKS = {
    "any_to_any": "image_text_to_text",
    "sentence_similarity": "sentence_embedding",
    "text_classification": "sequence_classification",
    "text_ranking": "sentence_ranking",
}
# Other names, in transformers and in Hugging Face's containers.
MODES_OF_OTHER_TASKS = {
    "ner": "token_classification",
    "sentence_embeddings": "sentence_embedding",
    "sentiment_analysis": "sequence_classification",
    "text_to_audio": "text_to_speech",
    "vqa": "visual_question_answering",
}


def mode_of_task(task: str, modes: Sequence[str]) -> str | None:
    """Return the mode of a task as a pipeline or a container is given one; None for others.

    `sentence-similarity` compares sentences there, and on the hub it is what their vectors are for.
    """
    name = task.lower().replace("-", "_")
    if name in modes:
        return name
    return MODES_OF_HUB_TASKS.get(name) or MODES_OF_OTHER_TASKS.get(name)


def suggest_mode(word: str, modes: Sequence[str]) -> str:
    """Return a hint for an unknown mode: the mode of a task, the closest one, or a list."""
    found = mode_of_task(word, modes)
    return f"did you mean {found!r}?" if found else suggest(word, [*modes])
