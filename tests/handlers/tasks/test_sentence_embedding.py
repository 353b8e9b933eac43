"""Parameters of embeddings: types of numbers, prompts, and texts that are too long."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import T5EncoderModel

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import BadRequest, WrongCheckpoint, WrongConfig
from hf_serve.handlers.formats import export
from hf_serve.handlers.types.request import Request, TokenIds
from hf_serve.scripts.hub.catalogue import read_catalogue
from tests import tiny
from tests.catalogue import checkpoints as catalogued
from tests.reference.embedding_checkpoints import MODE, PROMPTS, write
from tests.samples import FINE, LONG
from tests.sentences import Sentence, refused
from tests.serving import Served, differences, explanation_of

TYPES = "sentence_transformers.models"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: Any) -> Path:
    """A checkpoint with prompts that are not pooled, for 40 tokens."""
    return write(tmp_path_factory.mktemp("prompts") / "model", "prompts")


@pytest.fixture(scope="module")
def model(prompts: Path) -> Served:
    return Served(prompts, MODE)


def test_a_prompt_is_named_or_written(model: Served) -> None:
    named = model.ask(FINE, prompt_name="query")
    assert model.ask(FINE, prompt=PROMPTS["query"]) == named != model.ask(FINE)
    assert model.ask(FINE) == model.ask(FINE, prompt_name="passage")
    status, sentence = model.refuse(FINE, prompt_name="title")
    assert status == 400
    assert "send one of passage, query" in sentence


def test_an_input_type_chooses_the_prompt(model: Served) -> None:
    named = model.ask(FINE, prompt_name="query")
    assert model.ask(FINE, input_type="search_query") == named
    assert model.ask(FINE, task="retrieval.query") == named
    assert model.ask(FINE, input_type="clustering") == model.ask(FINE, prompt="")
    assert model.refuse(FINE, input_type="image") == (400, Sentence("image", "query", "passage"))
    assert model.refuse(FINE, input_type="query", task="passage") == (
        400,
        Sentence("input_type", "task"),
    )


def test_prompts_of_the_yaml_precede_those_of_the_checkpoint(prompts: Path) -> None:
    parameters = {"prompt_name": "title"}
    own = Served(
        prompts, MODE, prompts={"query": "Who? ", "title": "Title: "}, parameters=parameters
    )
    asked = own.ask(FINE)
    assert asked == own.ask(FINE, prompt="Title: ") == own.ask(FINE, prompt_name="title")
    assert own.ask(FINE, input_type="query") == own.ask(FINE, prompt="Who? ") != asked
    assert own.ask(FINE, prompt_name="passage") == own.ask(FINE, prompt=PROMPTS["passage"])
    assert own.engine.task.prompts == ["passage", "query", "title"]


def test_wrong_prompts_of_the_yaml_stop_the_load(prompts: Path) -> None:
    with refused(WrongConfig, "handler.parameters", "title", "passage, query"):
        Served(prompts, MODE, parameters={"prompt_name": "title"})
    with refused(WrongConfig, "handler.prompts", "feature_extraction"):
        Served(prompts, "feature_extraction", prompts={"query": "Q: "})


def test_token_ids_take_no_prompt(model: Served) -> None:
    for choice in ({"prompt": "A: "}, {"prompt_name": "query"}, {"input_type": "query"}):
        assert model.refuse([[5, 6]], **choice) == (400, Sentence("token ids", "prompt"))
    assert model.ask([[5, 6]], input_type="passage") == model.ask([[5, 6]])


def test_a_prompt_without_room_for_a_text_is_refused(model: Served) -> None:
    assert model.refuse(FINE, prompt=LONG) == (
        413,
        Sentence("prompt", "tokens"),
    )


def test_the_special_token_before_a_prompt_is_never_pooled(model: Served) -> None:
    task, parameters = model.engine.task, {"prompt_name": "query", "truncation_direction": "left"}
    rows: Any = task.encode(
        [task.parse(Request(LONG[-size:], parameters)) for size in (20, 70, 500)]
    )
    masks = [row.features["prompt_mask"] for (row,) in rows]
    assert [mask[0] for mask in masks] == [1, 1, 1]
    assert [len(mask) for mask in masks[1:]] == [40, 40]
    assert sum(masks[0]) > sum(masks[1]) >= sum(masks[2]) == 1


def test_a_text_in_lower_case_has_the_same_vector(model: Served) -> None:
    assert model.ask(FINE.upper()) == model.ask(FINE.lower())


def test_a_long_text_is_cut_at_either_end_or_refused(model: Served) -> None:
    changed = f"dull {LONG} dull"
    given = {"prompt": ""}
    assert model.ask(LONG, **given) == model.ask(f"{LONG} dull", **given)
    left = {**given, "truncation_direction": "left"}
    assert model.ask(LONG, **left) == model.ask(f"dull {LONG}", **left)
    assert model.ask(changed, **left) != model.ask(changed, **given)
    status, sentence = model.refuse(LONG, truncate=False)
    assert status == 413
    assert "this model takes 40" in sentence


def test_vectors_have_the_dimensions_that_the_checkpoint_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "modernbert")
    whole = Served(folder, MODE).ask(FINE)
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(json.dumps({"truncate_dim": 6}))
    model = Served(folder, MODE)
    first = np.array(whole[:6])
    np.testing.assert_allclose(model.ask(FINE), first / np.linalg.norm(first), atol=1e-5)
    assert model.ask(FINE, dimensions=4) != model.ask(FINE)[:4]
    assert not differences(model.ask(FINE, dimensions=len(whole)), whole, 1e-5)
    alike = Served(folder, "sentence_similarity").ask(
        {"source_sentence": FINE, "sentences": ["dull"]}
    )
    assert alike[0] == pytest.approx(np.dot(model.ask(FINE), model.ask("dull")), abs=1e-5)


def test_the_length_of_the_modules_replaces_that_of_the_tokenizer(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "modernbert")
    tokenizer = folder / "tokenizer_config.json"
    tokenizer.write_text(
        json.dumps({**json.loads(tokenizer.read_text("utf-8")), "model_max_length": 16})
    )
    assert Served(folder, MODE).engine.task.limits.max_length == 16
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    assert Served(folder, MODE).engine.task.limits.max_length == 40
    assert Served(folder, MODE, max_length=9).engine.task.limits.max_length == 9


def test_a_causal_language_model_without_modules_has_the_vector_of_its_last_token(
    tmp_path: Path,
) -> None:
    folder = tiny.write(tmp_path / "model", MODE, family="Qwen2", num_key_value_heads=1)
    mean, config = Served(folder, MODE).ask(FINE), folder / "config.json"
    causal = {**json.loads(config.read_text("utf-8")), "architectures": ["Qwen2ForCausalLM"]}
    config.write_text(json.dumps(causal))
    model = Served(folder, MODE)
    last = model.ask(FINE)
    assert np.abs(np.array(last) - mean).max() > 0.1
    both_ways: Any = {**causal, "is_causal": False}
    config.write_text(json.dumps(both_ways))
    task: Any = Served(folder, MODE).engine.task
    assert task.modules.pooling.modes == ["mean"]
    task = model.engine.task
    assert task.modules.pooling.modes == ["lasttoken"]
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with refused(WrongCheckpoint, "chat template", "modules.json"):
        Served(folder, MODE)


def test_token_ids_are_taken_as_they_are(model: Served) -> None:
    task = model.engine.task
    ids = task.checkpoint.tokenizer(FINE)["input_ids"]
    requests = [Request(FINE, {"prompt": ""}), Request(ids), Request(TokenIds(tuple(ids)))]
    text, listed, named = model.engine.predict(requests)
    assert not differences(listed, text, 1e-5)
    assert listed == named
    (unknown,) = model.engine.predict([Request([10**6])])
    assert isinstance(unknown, BadRequest)


def test_more_dimensions_than_the_model_has_are_refused(model: Served) -> None:
    status, sentence = model.refuse(FINE, dimensions=97)
    assert status == 400
    assert "the vectors of this model have 96" in sentence
    assert len(model.ask(FINE, dimensions=96)) == 96


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "uint8"])
def test_numbers_with_fewer_bits_have_nearly_the_same_direction(
    model: Served, precision: str
) -> None:
    exact = np.array(model.ask(FINE))
    encoded = model.ask(FINE, precision=precision, encoding_format="base64")
    array = np.frombuffer(base64.b64decode(encoded), dtype=np.dtype(precision).newbyteorder("<"))
    listed = np.array(model.ask(FINE, precision=precision), dtype=array.dtype)
    assert np.array_equal(listed, array)
    numbers = array.astype(np.float64) - (128 if precision == "uint8" else 0)
    cosine = numbers @ exact / np.linalg.norm(numbers) / np.linalg.norm(exact)
    assert cosine > 0.9999
    if precision == "int8":
        assert np.abs(numbers).max() == 127


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("packs", [True, False])
def test_a_graph_leaves_the_prompt_out_of_the_pooling(
    prompts: Path, model: Served, tmp_path: Path, packs: bool
) -> None:
    folder = tmp_path / "graph"
    shutil.copytree(prompts, folder)
    keys = {"save_mode": "torchscript", "dtype": "float32", "BetterTransformer": packs}
    export(folder, ModelConfig.parse({"handler": {"mode": MODE, **keys}}), folder)
    (folder / "model.safetensors").unlink()
    graph = Served(folder, MODE, **keys)
    assert graph.engine.model.capabilities.supports_packing == packs
    bodies = [{"inputs": text, "parameters": {"prompt_name": "query"}} for text in (FINE, LONG)]
    replies = [list(reply) for reply in graph.post(*bodies)]
    assert not differences(replies, [list(reply) for reply in model.post(*bodies)], 1e-4)


@pytest.mark.parametrize("whole", [True, False], ids=["T5", "its encoder"])
@pytest.mark.parametrize("save_mode", ["pretrained", "torchscript"])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_of_t5_the_encoder_is_served(tmp_path: Path, save_mode: str, whole: bool) -> None:
    """As in sentence-transformers, for sentence-t5 and its kind."""
    tiny.write(tmp_path, "text2text_generation")
    encoder = T5EncoderModel.from_pretrained(tmp_path).eval()
    if not whole:
        encoder.save_pretrained(tmp_path)
    pooling = {"word_embedding_dimension": encoder.config.hidden_size}
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{TYPES}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{TYPES}.Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    keys = {"save_mode": save_mode, "dtype": "float32"}
    if save_mode != "pretrained":
        export(tmp_path, ModelConfig.parse({"handler": {"mode": MODE, **keys}}), tmp_path)
    served = Served(tmp_path, MODE, **keys)
    tokenizer = served.engine.task.checkpoint.tokenizer
    texts = [FINE, LONG, "a"]
    for text, (status, vector) in zip(
        texts, served.post(*[{"inputs": text} for text in texts]), strict=True
    ):
        assert status == 200
        with torch.inference_mode():
            inputs = tokenizer(text, return_tensors="pt", truncation=True)
            states = encoder(**inputs).last_hidden_state[0]
        assert np.allclose(vector, states.mean(0), atol=1e-4)


@pytest.mark.parametrize("method", ["layer_integrated_gradients", "feature_ablation"])
def test_the_encoder_of_t5_is_explained(tmp_path: Path, method: str) -> None:
    tiny.write(tmp_path, "text2text_generation")
    served = Served(tmp_path, "sentence_similarity", allow_random_head=True)
    inputs = {"source_sentence": "a fine film", "sentences": ["the fox sings"]}
    body = {"inputs": inputs, "parameters": {"method": method}}
    ((status, explanation),) = served.post(explanation_of(body))
    assert status == 200, explanation


@pytest.fixture(scope="module")
def bge_m3(tmp_path_factory: Any) -> Path:
    """A checkpoint with a weight and a vector for each token."""
    return catalogued.write(read_catalogue()["bge-m3"], tmp_path_factory.mktemp("m3") / "model")


def test_a_request_chooses_among_the_vectors_of_one_forward(bge_m3: Path) -> None:
    model = Served(bge_m3, MODE)
    vector = model.ask(FINE)
    names = {"return_sparse": True, "return_colbert_vecs": True}
    (found,) = model.post({"inputs": FINE, "parameters": names})
    whole = found[1]
    assert whole.keys() == {"dense_vecs", "lexical_weights", "colbert_vecs"}
    assert whole["dense_vecs"] == vector
    assert model.ask(FINE, return_dense=False, return_sparse=True) == {
        "lexical_weights": whole["lexical_weights"]
    }
    ids = model.engine.task.checkpoint.tokenizer(FINE)["input_ids"]
    assert {each["index"] for each in whole["lexical_weights"]} <= set(ids[1:-1])
    assert np.allclose(np.linalg.norm(whole["colbert_vecs"], axis=1), 1, atol=1e-6)
    assert len(whole["colbert_vecs"]) == len(ids) - 1
    short = model.ask(FINE, dimensions=8, precision="int8", **names)
    assert len(short["dense_vecs"]) == 8
    assert short["colbert_vecs"] == whole["colbert_vecs"]


def test_a_request_for_no_result_or_for_one_that_a_model_has_not_is_refused(
    bge_m3: Path, model: Served
) -> None:
    assert model.refuse(FINE, return_colbert_vecs=True) == (
        422,
        Sentence("return_colbert_vecs", "bge-m3"),
    )
    for each in (model, Served(bge_m3, MODE)):
        assert each.refuse(FINE, return_dense=False) == (400, Sentence("return_dense"))


def test_vectors_of_tokens_that_exceed_a_response_are_refused_before_the_model_runs(
    bge_m3: Path,
) -> None:
    model = Served(bge_m3, MODE)
    names = {"return_dense": False, "return_colbert_vecs": True}
    task: Any = model.engine.task
    small, large = (task.parse(Request(FINE, each)) for each in ({}, names))
    for item, count in ((small, 0), (large, 32)):
        (rows,) = task.encode([item])
        assert task.result_numbers(item, rows) == count * len(rows[0])


@pytest.mark.parametrize("content", [b"no pickle", {"weight": Path("elsewhere")}, {"bias": 1}])
def test_layers_that_are_no_tensors_are_refused(bge_m3: Path, tmp_path: Path, content: Any) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bge_m3, folder)
    path = folder / "sparse_linear.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with refused(WrongCheckpoint, "sparse_linear.pt", "FlagEmbedding"):
        Served(folder, MODE)


def test_layers_of_different_checkpoints_are_refused(bge_m3: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bge_m3, folder)
    torch.save({"weight": torch.ones(1, 5), "bias": torch.ones(1)}, folder / "sparse_linear.pt")
    with refused(WrongCheckpoint, "sparse_linear.pt", "5 to 1", "32"):
        Served(folder, MODE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("packs", [True, False])
def test_a_graph_has_all_vectors(bge_m3: Path, tmp_path: Path, packs: bool) -> None:
    folder = tmp_path / "graph"
    shutil.copytree(bge_m3, folder)
    keys = {"save_mode": "torchscript", "dtype": "float32", "BetterTransformer": packs}
    export(folder, ModelConfig.parse({"handler": {"mode": MODE, **keys}}), folder)
    names = {"return_sparse": True, "return_colbert_vecs": True}
    bodies = [{"inputs": text, "parameters": names} for text in (FINE, LONG, "zzz")]
    found, expected = (
        [list(reply) for reply in Served(folder, MODE, **each).post(*bodies)] for each in (keys, {})
    )
    assert not differences(found, expected, 1e-4)


CHUNKS = [
    "Berlin is the capital of Germany.",
    "Its people number 3.85 million.",
    " The city grows.",
]


@pytest.fixture(scope="module")
def mean(tmp_path_factory: Any) -> Served:
    """A model with the mean over tokens, dense layers and normalization behind it."""
    return Served(write(tmp_path_factory.mktemp("mean") / "model", "modernbert"), MODE)


def pooled_late(model: Served, chunks: list[str], prompt: str = "") -> Any:
    """Return the means over the tokens of chunks, as the authors' evaluation has their bounds."""
    task = model.engine.task
    tokenizer, joined = task.checkpoint.tokenizer, f"{prompt}{chunks[0]} {chunks[1]}{chunks[2]}"
    module: Any = model.engine.model
    inputs = tokenizer(joined, return_tensors="pt")
    with torch.inference_mode():
        states = module.module.module(**inputs).last_hidden_state[0]
    lengths = [
        len(tokenizer(text, add_special_tokens=False)["input_ids"])
        for text in (f"{prompt}{chunks[0]}", f" {chunks[1]}", chunks[2])
    ]
    assert sum(lengths) == len(states) - 2
    ends = np.cumsum([1 + lengths[0], lengths[1], lengths[2] + 1])
    starts = [0, *ends[:-1]]
    means = [states[start:end].mean(0).numpy() for start, end in zip(starts, ends, strict=True)]
    return [mean / np.linalg.norm(mean) for mean in means]


def test_chunks_have_the_means_over_their_tokens_in_the_whole_document(mean: Served) -> None:
    for prompt in ("", "A text: "):
        found = mean.ask({"chunks": CHUNKS}, prompt=prompt)
        np.testing.assert_allclose(found, pooled_late(mean, CHUNKS, prompt), atol=1e-5)
    alone = mean.ask({"chunks": CHUNKS[:1]})
    np.testing.assert_allclose(alone, [mean.ask(CHUNKS[0])], atol=1e-6)
    bodies = [{"inputs": each} for each in (CHUNKS[0], {"chunks": CHUNKS}, "dull")]
    (_, first), (_, found), (_, last) = mean.post(*bodies)
    assert not differences(found, mean.ask({"chunks": CHUNKS}), 1e-5)
    assert not differences([first, last], [mean.ask(CHUNKS[0]), mean.ask("dull")], 1e-5)
    short = mean.ask({"chunks": CHUNKS}, dimensions=4, precision="int8")
    assert [len(each) for each in short] == [4, 4, 4]


def test_chunks_that_no_forward_reads_are_refused(mean: Served, model: Served) -> None:
    assert mean.refuse({"chunks": ["Ada.", " "]}) == (400, Sentence("chunks[1]"))
    assert mean.refuse({"chunks": []}) == (400, Sentence("chunks"))
    assert mean.refuse({"chunks": ["Ada.", 5]}) == (400, Sentence("chunks[1]"))
    assert mean.refuse({"parts": ["Ada."]}) == (400, Sentence("parts", "chunks"))
    assert mean.refuse({"chunks": [LONG] * 40}) == (413, Sentence("128"))
    assert model.refuse({"chunks": CHUNKS}) == (422, Sentence("mean over tokens"))
    ((status, answer),) = mean.post(explanation_of({"inputs": {"chunks": CHUNKS}}))
    assert (status, answer["message"]) == (400, Sentence("Chunks"))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_graph_refuses_chunks_and_answers_texts(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "alone")
    keys = {"save_mode": "torchscript", "dtype": "float32"}
    export(folder, ModelConfig.parse({"handler": {"mode": MODE, **keys}}), folder)
    graph = Served(folder, MODE, **keys)
    (refusal, (status, _)) = graph.post({"inputs": {"chunks": CHUNKS}}, {"inputs": FINE})
    assert (refusal[0], refusal[1]["message"]) == (422, Sentence("save_mode: pretrained"))
    assert status == 200
