"""The test cases of late interaction."""

from tests.modes._cases import FINE, LONG, ODD, ModeCases

RANKING = {"query": "Who sings?", "texts": [FINE, {"text": ODD}, "dull"]}

CASES = ModeCases(
    inputs=[FINE, RANKING, ODD, LONG, {"query": ODD, "documents": "Nina sings in Paris."}],
    parameters=[{}, {"prompt_name": "query"}, {"top_n": 2, "return_documents": True}],
    brief={"top_n": 1},
)
