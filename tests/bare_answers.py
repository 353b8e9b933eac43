"""Predict with unpacked archives in a bare interpreter: `python -I bare_answers.py`.

Standard input is a JSON list of [folder, [[inputs, parameters], ...]]; standard output is a list of
each folder's answers.
"""

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Load each folder with the handlers package of the first, and print its answers."""
    archives = json.load(sys.stdin)
    sys.path.insert(0, archives[0][0])
    engines = importlib.import_module("hf_serve.handlers.engine")
    requests = importlib.import_module("hf_serve.handlers.types.request")

    answers = []
    for folder, contents in archives:
        engine = engines.Engine.load(Path(folder))
        answers.append(engine.predict([requests.Request(*content) for content in contents]))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
