"""The test cases of table question answering."""

from __future__ import annotations

import json
from typing import Any

from tests.modes._cases import FINE, ODD, ModeCases

TABLE = {
    "Name": ["Ada", "Tom", "Nina"],
    "City": ["Paris", "London", "New York"],
    "Age": [36, 41, ""],
}
ROWS = [{"Name": "Ada", "Sings": ODD}, {"Name": "Tom", "Sings": 2.5}]


def with_question(text: Any) -> Any:
    """Return a question about a table, in the form that tensors and tables of rows have."""
    return {"table": json.dumps(TABLE), "query": text}


CASES = ModeCases(
    inputs=[
        with_question(FINE),
        {"table": ROWS, "question": ["Who sings?", ODD, "Where does Ada live?"]},
        {"table": {**TABLE, "Note": [FINE * 9, ODD, "dull"]}, "query": ["What is dull?"]},
        {"table": {"Name": ["Tom"], "City": ["London"]}, "query": "Where does Tom live?"},
    ],
    parameters=[{}, {"sequential": True}, {"truncation": "drop_rows_to_fit"}],
    config={
        # With these sizes, the tiny model selects some cells of a column.
        "type_vocab_sizes": [3, 136, 136, 2, 136, 136, 10],
        "aggregation_labels": {0: "NONE", 1: "SUM", 2: "AVERAGE", 3: "COUNT"},
        "num_aggregation_labels": 4,
        "no_aggregation_label_index": 0,
    },
    with_text=with_question,
    text_name="query",
    in_windows=True,
    rows=[with_question(text) for text in (FINE, ODD, "dull")],
)
