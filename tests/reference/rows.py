"""Inputs and parameters of the pipelines of transformers 4, for each mode."""

from __future__ import annotations

from itertools import product
from typing import Any

PipelineCall = tuple[Any, dict[str, Any]]

FINE = "A fine film with a great cast, and the music is lovely."
DULL = "A dull film: the plot is thin and the actors are bored."
PEOPLE = "Nina Vogel sings in Paris; her brother Tom lives in New York."
ODD = "The naïve señor's café in Zürich 🎉 opened: unbelievable, unsingable… 北京是首都!"
COMBINED = "cafe\u0301 Zu\u0308rich and 👩\u200d🚀 in\u00a0Paris\tor  London\r\n"
LONG = " ".join([PEOPLE, DULL, ODD, FINE, PEOPLE, "Unhappily, Ada walks in London.", DULL, PEOPLE])
SHORT = (PEOPLE, ODD, COMBINED, "🎉", "[CLS] Ada [SEP] Tom [UNK] <s> </s>")
TEXTS = (*SHORT, FINE, LONG, "zzz")
PAIR = {"text": FINE, "text_pair": DULL}

LABELS: list[PipelineCall] = [
    *((text, {}) for text in TEXTS),
    *((text, {"top_k": None}) for text in TEXTS),
    (FINE, {"top_k": 1}),
    (FINE, {"top_k": 2}),
    (FINE, {"top_k": 99}),
    *(
        (FINE, {"top_k": top_k, "function_to_apply": function})
        for top_k, function in product((None, 2), ("sigmoid", "softmax", "none"))
    ),
    (FINE, {"function_to_apply": "none"}),
    (PAIR, {}),
    (PAIR, {"top_k": None}),
    ({"text": DULL}, {"top_k": 2}),
    ({"text": LONG, "text_pair": LONG}, {"top_k": None}),
    ([FINE, DULL, ODD], {}),
    ([FINE, LONG, DULL], {"top_k": 2}),
    ([PAIR, {"text": DULL, "text_pair": FINE}], {"top_k": None}),
    ([PAIR, {"text": DULL, "text_pair": FINE}], {}),
]

STRATEGIES = ("none", "simple", "first", "average", "max")
TAGS: list[PipelineCall] = [
    *((text, {"aggregation_strategy": strategy}) for text, strategy in product(SHORT, STRATEGIES)),
    (LONG, {"aggregation_strategy": "average"}),
    (PEOPLE, {}),
    (PEOPLE, {"ignore_labels": []}),
    (PEOPLE, {"ignore_labels": ["B-PER", "I-PER"]}),
    (PEOPLE, {"aggregation_strategy": "simple", "ignore_labels": []}),
    (PEOPLE, {"aggregation_strategy": "simple", "ignore_labels": ["PER", "O"]}),
    (ODD, {"aggregation_strategy": "average", "ignore_labels": ["LOC"]}),
    *(
        (LONG, {"aggregation_strategy": strategy, "stride": stride})
        for strategy, stride in (("simple", 0), ("first", 16), ("average", 100), ("max", 50))
    ),
    (PEOPLE, {"aggregation_strategy": "first", "stride": 8}),
    ([PEOPLE, ODD, FINE], {"aggregation_strategy": "max"}),
]

WHO = "Who sings in Paris?"
LONG_QUESTION = "Who is it that sings in the old bar near the river in Paris when the moon is up?"
CONTEXTS = (PEOPLE, ODD, COMBINED, LONG, "Paris sings", "[CLS] Ada [SEP] Tom")
ANSWERS: list[PipelineCall] = [
    *(({"question": WHO, "context": text}, {}) for text in CONTEXTS),
    *(({"question": WHO, "context": text}, {"top_k": 3}) for text in CONTEXTS),
    *(({"question": WHO, "context": text}, {"align_to_words": False}) for text in CONTEXTS),
    ({"question": LONG_QUESTION, "context": LONG}, {"top_k": 2}),
    ({"question": WHO, "context": LONG}, {"top_k": 3, "align_to_words": False}),
    ({"question": WHO, "context": PEOPLE}, {"max_answer_len": 1, "top_k": 2}),
    ({"question": WHO, "context": LONG}, {"max_answer_len": 2, "top_k": 4}),
    ({"question": WHO, "context": LONG}, {"max_answer_len": 200}),
    *(
        ({"question": WHO, "context": text}, {"handle_impossible_answer": True, "top_k": top_k})
        for text, top_k in product((PEOPLE, LONG), (1, 3, 20))
    ),
    *(
        ({"question": WHO, "context": LONG}, {"max_seq_len": size, "doc_stride": stride, **more})
        for size, stride in ((32, 8), (32, 0), (64, 32), (48, 20), (100, 50))
        for more in ({}, {"top_k": 3, "handle_impossible_answer": True})
    ),
    ({"question": WHO, "context": LONG}, {"max_seq_len": 40}),
    ({"question": WHO, "context": LONG}, {"doc_stride": 4, "top_k": 2}),
]

WRITTEN: list[PipelineCall] = [
    *((text, {"max_new_tokens": 12}) for text in (PEOPLE, ODD, COMBINED, "🎉", FINE, "zzz")),
    (PEOPLE, {}),
    (FINE, {"num_beams": 1, "max_new_tokens": 8}),
    (FINE, {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 8}),
    (FINE, {"min_new_tokens": 9, "max_new_tokens": 10, "clean_up_tokenization_spaces": True}),
    (DULL, {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "max_new_tokens": 8}),
    (LONG, {"truncation": True, "max_new_tokens": 6}),
    ([PEOPLE, ODD, FINE], {"max_new_tokens": 6}),
    ([PEOPLE, FINE], {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 6}),
]
FAMILIES = ["t5", "bart", "marian", "pegasus"]
MASKED = (
    "Nina [MASK] in Paris; her brother lives in New York.",
    "[MASK]",
    "A fine film [MASK] a great cast, [MASK] the music is lovely.",
    f"{ODD} [MASK]",
    f"[MASK] 🎉 {COMBINED}",
)
WORDS: tuple[Any, ...] = ("paris", ["paris", "london", "paris"], ["unsingable songs", "music"])
FILLED: list[PipelineCall] = [
    *((text, {}) for text in MASKED),
    *((text, {"top_k": 1}) for text in MASKED),
    *((text, {"targets": words}) for text, words in product(MASKED[:3], WORDS)),
    (MASKED[0], {"targets": ["music", "bar", "river"], "top_k": 2}),
    (MASKED[0], {"top_k": 50}),
    ([*MASKED], {"top_k": 2}),
]

TOPICS: tuple[Any, ...] = (["music", "weather", "cities"], "music, weather", ["music"], ["a", "a"])
CHOSEN: list[PipelineCall] = [
    *(
        (text, {"candidate_labels": labels, "multi_label": multi})
        for text, labels, multi in product((PEOPLE, ODD, COMBINED, LONG), TOPICS, (False, True))
    ),
    (FINE, {"candidate_labels": TOPICS[0], "hypothesis_template": "It is about {}, I think."}),
    ([FINE, DULL, LONG], {"candidate_labels": TOPICS[0]}),
]

CASES: dict[str, tuple[str, list[str], list[PipelineCall]]] = {
    "sequence_classification": (
        "text-classification",
        ["bert", "roberta", "many", "regression", "one", "minilm"],
        LABELS,
    ),
    "token_classification": (
        "token-classification",
        ["bert", "roberta", "odd", "minilm"],
        TAGS,
    ),
    "question_answering": ("question-answering", ["bert", "roberta", "minilm"], ANSWERS),
    "summarization": ("summarization", ["t5 with tasks", "bart"], WRITTEN),
    "translation": ("translation", ["t5", "marian"], WRITTEN),
    "text2text_generation": ("text2text-generation", FAMILIES, WRITTEN),
    "fill_mask": ("fill-mask", ["bert", "roberta"], FILLED),
    "zero_shot_classification": (
        "zero-shot-classification",
        ["bert", "roberta", "entailment_first"],
        CHOSEN,
    ),
}
