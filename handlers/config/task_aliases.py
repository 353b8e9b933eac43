"""Names of tasks on the hub, in transformers' pipelines and in containers, and their modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches

from .messages import MAX_WORD, suggest

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
# Words that people use for tasks, and that are in no name of a mode or a task.
WORDS_OF_MODES = {
    "asr": ("automatic_speech_recognition",),
    "caption": ("image_to_text",),
    "chat": ("image_text_to_text", "text_generation"),
    "clip": ("multimodal_embedding", "zero_shot_image_classification"),
    "colbert": ("late_interaction",),
    "completion": ("text_generation",),
    "diffusion": ("text_to_image",),
    "entities": ("token_classification", "zero_shot_token_classification"),
    "llm": ("image_text_to_text", "text_generation"),
    "ocr": ("document_question_answering", "image_to_text"),
    "pii": ("token_classification", "zero_shot_token_classification"),
    "qa": (
        "document_question_answering",
        "question_answering",
        "table_question_answering",
        "visual_question_answering",
    ),
    "rerank": ("sentence_ranking",),
    "score": ("sentence_ranking", "sentence_similarity"),
    "splade": ("sparse_embedding",),
    "transcription": ("automatic_speech_recognition",),
    "tts": ("text_to_speech",),
    "vlm": ("image_text_to_text",),
}
# How much of two names is the same in a misspelt one.
ALMOST = 0.8
# Letters that two words of one kind have at their beginning, at least, and of an ending, at most.
STEM, ENDING = 4, 3


def mode_of_task(task: str, modes: Sequence[str]) -> str | None:
    """Return the mode of a task as a pipeline or a container is given one; None for others.

    `sentence-similarity` compares sentences there, and on the hub it is what their vectors are for.
    """
    name = task.lower().replace("-", "_")
    if name in modes:
        return name
    return MODES_OF_HUB_TASKS.get(name) or MODES_OF_OTHER_TASKS.get(name)


def suggest_mode(word: str, modes: Sequence[str]) -> str:
    """Return a hint for an unknown mode: the mode of a task, those with its words, or a list."""
    if found := mode_of_task(word, modes):
        return f"did you mean {found!r}?"
    name = word[:MAX_WORD].lower().replace("-", "_")
    words = name.split("_")
    close = _modes_with(words, modes, _is_same, least=len(words))
    if not close:
        names = {each: mode for mode in modes for each in (mode, *_tasks_of(mode))}
        close = [names[each] for each in get_close_matches(name, names, n=1, cutoff=ALMOST)]
    if not close:
        close = _modes_with(words, modes, _is_like, least=1)
    if len(close) > 1:
        return f"did you mean one of {', '.join(map(_with_tasks, close))}?"
    return f"did you mean {close[0]!r}?" if close else suggest(word, [*modes])


def _modes_with(
    words: Sequence[str], modes: Sequence[str], is_same: Callable[[str, str], bool], least: int
) -> list[str]:
    """Return the modes in whose names most of some words are, and at least as many as is said."""
    counts = dict.fromkeys(modes, 0)
    for mode in modes:
        parts = {part for name in (mode, *_other_names(mode)) for part in name.split("_")}
        counts[mode] = sum(any(is_same(word, part) for part in parts) for word in words)
    most = max(counts.values())
    return [mode for mode, count in counts.items() if count == most >= least]


def _is_same(word: str, part: str) -> bool:
    return word.removesuffix("s") == part.removesuffix("s")


def _is_like(word: str, part: str) -> bool:
    """Return whether two words begin alike, as `classify` and `classification`, or nearly agree."""
    stem = word[: max(STEM, len(word) - ENDING)]
    is_kind = len(stem) >= STEM and part.startswith(stem)
    return is_kind or bool(get_close_matches(word, [part], n=1, cutoff=ALMOST))


def _other_names(mode: str) -> Iterator[str]:
    yield from _tasks_of(mode)
    yield from (word for word, found in WORDS_OF_MODES.items() if mode in found)


def _tasks_of(mode: str) -> list[str]:
    tasks = MODES_OF_HUB_TASKS | MODES_OF_OTHER_TASKS
    return [task for task, found in tasks.items() if found == mode]


def _with_tasks(mode: str) -> str:
    """Return a mode with the other names of its task."""
    tasks = [task.replace("_", "-") for task in _tasks_of(mode)]
    return f"{mode} ({', '.join(tasks)})" if tasks else mode
