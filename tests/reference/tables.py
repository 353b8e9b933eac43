"""Checkpoints of TAPAS, and what the pipeline of transformers 4 is asked with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import tiny
from tests.reference.rows import COMBINED, DULL, FINE, LONG_QUESTION, ODD, PEOPLE, WHO

MODE = "table_question_answering"
KINDS: dict[str, dict[str, Any]] = {
    "aggregations": {},
    "cells": {"seed": 1, "num_aggregation_labels": 0, "aggregation_labels": None},
    "other": {"seed": 2},
}
PERSONS = {
    "Name": ["Ada", "Tom", "Nina Vogel"],
    "City": ["Paris", "London", "New York"],
    "Age": ["36", "41", "29"],
}
TABLES: list[dict[str, list[str]]] = [
    PERSONS,
    {"Text": [FINE, DULL, PEOPLE, ODD, COMBINED], "Stars": ["5", "1.5", "three", "", "n/a"]},
    {"Day": ["1 may 2010", "february 2011", "2012-03-04"], "🎉": ["²", "[CLS]", "9" * 30]},
    {"Song": [f"the music {number}" for number in range(60)], "Year": [*map(str, range(60))]},
]
QUESTIONS = [WHO, "How many are over 30 in may 2010?", ODD, LONG_QUESTION]
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({"table": table, "query": question}, {}) for table in TABLES for question in QUESTIONS),
    *(
        # The pipeline fails where a question has a row that does not fit with the one before.
        ({"table": table, "query": QUESTIONS}, {"sequential": sequential})
        for table in TABLES[:3]
        for sequential in (False, True)
    ),
    ({"table": PERSONS, "query": WHO}, {"truncation": "do_not_truncate"}),
]


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind."""
    return tiny.write(folder, MODE, **KINDS[kind])
