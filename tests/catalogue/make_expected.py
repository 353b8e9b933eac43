"""Run the libraries of embeddings and ranking, and keep their answers in expected.jsonl.

    pip install torch 'sentence-transformers>=6' pydantic pyyaml typer
    python tests/catalogue/make_expected.py sentence-transformers
    pip install torch 'transformers>=5' 'pylate>=1.6' pydantic pyyaml typer
    python tests/catalogue/make_expected.py pylate
    pip install torch gliner pydantic pyyaml typer
    python tests/catalogue/make_expected.py gliner
    pip install torch 'gliner2[local]' pydantic pyyaml typer
    python tests/catalogue/make_expected.py gliner2
    pip install torch gliclass pydantic pyyaml typer
    python tests/catalogue/make_expected.py gliclass
    pip install torch 'transformers>=5,<6' FlagEmbedding pydantic pyyaml typer
    python tests/catalogue/make_expected.py FlagEmbedding
    pip install torch 'transformers<5' mxbai-rerank pydantic pyyaml typer
    python tests/catalogue/make_expected.py mxbai-rerank
    pip install torch 'transformers>=5' model2vec pydantic pyyaml typer
    python tests/catalogue/make_expected.py model2vec

Each writes the answers of the entries that name the library; those of the others stay. The names of
entries behind it write the answers of these alone.
"""

# ruff: noqa: E402 - the path to the repository comes first
from __future__ import annotations

import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from hf_serve.scripts.hub.catalogue import CatalogueEntry, read_catalogue
from tests.catalogue import expected
from tests.catalogue.checkpoints import write

# Not in the environment in which this repository is type-checked.
Library = Any


def main(library: str, *names: str) -> None:
    """Write the answers of a library."""
    kept = expected.read()
    for name, entry in read_catalogue().items():
        if entry.reference == library and not entry.refused and (not names or name in names):
            with tempfile.TemporaryDirectory() as place:
                folder = write(entry, Path(place) / name)
                kept[name] = ANSWERS[library, str(entry.mode)](str(folder), entry)
    lines = [{"entry": name, "answers": kept[name]} for name in sorted(kept)]
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    expected.PATH.write_text(text, encoding="utf-8")


def _vectors(folder: str, entry: CatalogueEntry) -> Any:
    library: Library = import_module("sentence_transformers")
    model = library.SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": "float32"})
    prompts = expected.prompts_of(entry)
    return [
        _rounded(model.encode([text], prompt=prompts[name] if name else None)[0])
        for text, name in expected.embedding_calls(entry)
    ]


def _weights(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("sentence_transformers")
    model = library.SparseEncoder(folder, device="cpu")
    rows = [
        model.encode([text], convert_to_sparse_tensor=False)[0].tolist() for text in expected.TEXTS
    ]
    return [_largest(row) for row in rows]


def _largest(row: list[float]) -> list[tuple[int, float]]:
    order = sorted(range(len(row)), key=lambda place: -row[place])
    return [(place, round(row[place], 5)) for place in order[: expected.LARGEST] if row[place] > 0]


def _scores(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("sentence_transformers")
    model = library.CrossEncoder(folder, device="cpu", model_kwargs={"dtype": "float32"})
    return [
        [round(float(model.predict([(query, text)])[0]), 5) for text in expected.TEXTS]
        for query in expected.QUERIES
    ]


def _late_scores(folder: str, _: CatalogueEntry) -> Any:
    models: Library = import_module("pylate.models")
    scores: Library = import_module("pylate.scores")
    model = models.ColBERT(folder, device="cpu")

    def vectors(text: str, *, is_query: bool) -> Any:
        (found,) = model.encode([text], is_query=is_query, convert_to_tensor=True)
        return found[None]

    return [
        [
            round(
                float(
                    scores.colbert_scores(
                        vectors(query, is_query=True), vectors(text, is_query=False)
                    )[0, 0]
                ),
                4,
            )
            for text in expected.TEXTS
        ]
        for query in expected.QUERIES
    ]


def _of_tokens(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("FlagEmbedding")
    model = library.BGEM3FlagModel(folder, use_fp16=False, devices="cpu")
    names = {"return_sparse": True, "return_colbert_vecs": True}
    found = [model.encode([text], max_length=64, **names) for text in expected.TEXTS]
    return [
        {
            "dense_vecs": _rounded(each["dense_vecs"][0]),
            "lexical_weights": {
                place: round(float(weight), 5)
                for place, weight in each["lexical_weights"][0].items()
            },
            "colbert_vecs": expected.some([_rounded(one) for one in each["colbert_vecs"][0]]),
        }
        for each in found
    ]


def _rounded(vector: Any) -> list[float]:
    return [round(float(each), 5) for each in vector]


def _static_vectors(folder: str, entry: CatalogueEntry) -> Any:
    library: Library = import_module("model2vec")
    model = library.StaticModel.from_pretrained(folder)
    return [_rounded(model.encode(text)) for text, _ in expected.embedding_calls(entry)]


def _entities(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("gliner")
    # gliner reads the config of an early checkpoint's encoder there.
    path = Path(folder) / "gliner_config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), "model_name": folder}
    path.write_text(json.dumps(config), encoding="utf-8")
    model = library.GLiNER.from_pretrained(folder, load_tokenizer=True, local_files_only=True)
    return [
        [
            [each["start"], each["end"], each["label"], round(float(each["score"]), 5)]
            for each in model.predict_entities(text, labels, **settings)
        ]
        for text, labels, settings in expected.EXTRACTIONS
    ]


def _entities_of_a_schema(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("gliner2")
    from tests.reference.make_gliner2 import entities  # noqa: PLC0415 - it imports gliner2

    model = library.GLiNER2.from_pretrained(folder).eval()
    return [
        entities(model, text, labels, settings) for text, labels, settings in expected.EXTRACTIONS
    ]


def _labels(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("gliclass")
    transformers: Library = import_module("transformers")
    classify = library.ZeroShotClassificationPipeline(
        library.GLiClassModel.from_pretrained(folder),
        transformers.AutoTokenizer.from_pretrained(folder),
        max_length=512,
        device="cpu",
        progress_bar=False,
    )
    return [
        [
            [each["label"], round(float(each["score"]), 5)]
            for each in classify(
                text,
                labels,
                threshold=0,
                classification_type="multi-label" if multi_label else "single-label",
            )[0]
        ]
        for text, labels, multi_label in expected.CLASSIFICATIONS
    ]


def _flag_scores(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("FlagEmbedding")
    model = library.FlagLLMReranker(folder, devices="cpu", normalize=True, trust_remote_code=False)
    return [
        [round(model.compute_score([(query, text)])[0], 5) for text in expected.TEXTS]
        for query in expected.QUERIES
    ]


def _mxbai_scores(folder: str, _: CatalogueEntry) -> Any:
    library: Library = import_module("mxbai_rerank")
    model = library.MxbaiRerankV2(folder, device="cpu", torch_dtype="float32")
    return [
        [
            round(float(model.predict([query], [text], normalize=False)[0].sigmoid()), 5)
            for text in expected.TEXTS
        ]
        for query in expected.QUERIES
    ]


ANSWERS = {
    ("sentence-transformers", "sentence_embedding"): _vectors,
    ("sentence-transformers", "sparse_embedding"): _weights,
    ("sentence-transformers", "sentence_ranking"): _scores,
    ("pylate", "late_interaction"): _late_scores,
    ("model2vec", "sentence_embedding"): _static_vectors,
    ("gliner", "zero_shot_token_classification"): _entities,
    ("gliner2", "zero_shot_token_classification"): _entities_of_a_schema,
    ("gliclass", "zero_shot_classification"): _labels,
    ("FlagEmbedding", "sentence_embedding"): _of_tokens,
    ("FlagEmbedding", "sentence_ranking"): _flag_scores,
    ("mxbai-rerank", "sentence_ranking"): _mxbai_scores,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
