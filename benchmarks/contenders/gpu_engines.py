"""Measures one contender of `make bench-gpu`, in its own process.

    python -m benchmarks.contenders.gpu_engines    reads a job as JSON from standard input

A job has `contender`, `device`, `seconds`, and `cases`, each with `name`, `part`, `folder` and
`loads`. A load has `name` and either `texts`, `pairs` or `prompts`. Each figure is printed at once
as a line of JSON, so that those before a failure or the end of the time remain.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

# Rows of a batch of the libraries that pad, which sort texts by length first.
BATCH = 256
AT_LEAST = 2  # runs of each load
Run = Callable[[Mapping[str, Any]], Any]


def main() -> None:
    """Run the job from standard input."""
    job = json.load(sys.stdin)
    for case in job["cases"]:
        try:
            run = CONTENDERS[job["contender"]](case, job)
        except Exception as error:  # noqa: BLE001 - the reason is the result
            _tell(case=case["name"], failure=f"{type(error).__name__}: {error}"[:300])
            continue
        for load in case["loads"]:
            try:
                _tell(case=case["name"], load=load["name"], rate=_rate(run, load, job))
            except Exception as error:  # noqa: BLE001 - the reason is the result
                reason = f"{type(error).__name__}: {error}"[:300]
                _tell(case=case["name"], load=load["name"], failure=reason)
        del run


def _tell(**found: Any) -> None:
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    sys.stdout.flush()


def _rate(run: Run, load: Mapping[str, Any], job: Mapping[str, Any]) -> float:
    """Return how often a second a load runs, after a warm-up with all of it."""
    run(load)
    times = list[float]()
    while sum(times) < job["seconds"] or len(times) < AT_LEAST:
        start = time.perf_counter()
        run(load)
        _synchronize(job["device"])
        times.append(time.perf_counter() - start)
    return len(times) / sum(times)


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def peak(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return a product of square matrices in bfloat16."""
    size = case["size"]
    one, other = (
        torch.randn(size, size, device=job["device"], dtype=torch.bfloat16) for _ in range(2)
    )
    return lambda _load: one @ other


# The modes of the parts that have texts or pairs.
MODES = {
    "classification": "sequence_classification",
    "embeddings": "sentence_embedding",
    "reranking": "sentence_ranking",
}


def kit(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return this kit's engine, tokenization and results included."""
    from hf_serve.handlers.config.model_config import ModelConfig  # noqa: PLC0415
    from hf_serve.handlers.engine import Engine  # noqa: PLC0415
    from hf_serve.handlers.process.threads import set_num_threads  # noqa: PLC0415
    from hf_serve.handlers.types.request import Request  # noqa: PLC0415

    set_num_threads(workers=1)
    generates = case["part"] not in MODES
    handler: dict[str, Any] = {
        "mode": "text_generation" if generates else MODES[case["part"]],
        "max_rows": 4096,
        "max_request_rows": 4096,
        "max_characters": 10_000_000,
        **({"max_num_seqs": len(case["loads"][0]["prompts"])} if generates else {}),
    }
    document = (
        {"continuousBatching": True, "handler": handler} if generates else {"handler": handler}
    )
    engine = Engine.load(Path(case["folder"]), ModelConfig.parse(document), job["device"])

    def run(load: Mapping[str, Any]) -> None:
        for outcome in engine.predict([Request(*each) for each in _requests(load)]):
            if isinstance(outcome, Exception):
                raise outcome

    return run


def _requests(load: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the inputs and the parameters of this kit's requests."""
    for text in load.get("texts", ()):
        yield text, {}
    for query, texts in load.get("pairs", ()):
        yield {"query": query, "texts": texts}, {}
    for prompt in load.get("prompts", ()):
        yield prompt, {"max_new_tokens": load["new_tokens"], "do_sample": False}


def transformers(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return transformers with SDPA in bfloat16, in padded batches of sorted texts."""
    from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(case["folder"])
    embeds = case["part"] == "embeddings"
    auto: Any = AutoModel if embeds else AutoModelForSequenceClassification
    model = auto.from_pretrained(case["folder"], dtype=torch.bfloat16).to(job["device"]).eval()

    @torch.inference_mode()
    def run(load: Mapping[str, Any]) -> None:
        rows = sorted(_rows(load), key=lambda row: sum(map(len, row)))
        for first in range(0, len(rows), BATCH):
            columns = [list(each) for each in zip(*rows[first : first + BATCH], strict=True)]
            batch = tokenizer(*columns, padding=True, return_tensors="pt").to(job["device"])
            outputs = model(**batch)
            if embeds:
                mask = batch["attention_mask"][..., None]
                found = (outputs.last_hidden_state * mask).sum(1) / mask.sum(1)
            else:
                found = outputs.logits
            found.float().cpu().tolist()

    return run


def _rows(load: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return texts, or pairs of a query and a text."""
    if "texts" in load:
        return [(text,) for text in load["texts"]]
    return [(query, text) for query, texts in load["pairs"] for text in texts]


def sentence_transformers(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return sentence-transformers in bfloat16, with flash attention where it is installed."""
    library = import_module("sentence_transformers")
    flash = job["device"] == "cuda" and find_spec("flash_attn") is not None
    options = {
        "device": job["device"],
        "model_kwargs": {
            "dtype": torch.bfloat16,
            "attn_implementation": "flash_attention_2" if flash else "sdpa",
        },
    }
    given = {"batch_size": BATCH, "show_progress_bar": False}
    if case["part"] == "embeddings":
        model = library.SentenceTransformer(case["folder"], **options)
        return lambda load: model.encode(load["texts"], **given)
    model = library.CrossEncoder(case["folder"], **options)
    return lambda load: model.predict(_rows(load), **given)


def vllm(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return vLLM in bfloat16."""
    library = import_module("vllm")
    options: dict[str, Any] = {"dtype": "bfloat16", "gpu_memory_utilization": 0.6}
    if case["part"] in MODES:
        engine = library.LLM(case["folder"], runner="pooling", **options)
        if case["part"] == "reranking":
            columns = [
                [row[number] for row in _rows(each)] for each in case["loads"] for number in (0, 1)
            ]
            pairs = dict(
                zip(
                    (each["name"] for each in case["loads"]),
                    zip(columns[::2], columns[1::2], strict=True),
                    strict=True,
                )
            )
            return lambda load: engine.score(*pairs[load["name"]], use_tqdm=False)
        call = engine.embed if case["part"] == "embeddings" else engine.classify
        return lambda load: call(load["texts"], use_tqdm=False)
    engine = library.LLM(case["folder"], max_model_len=1024, **options)
    return lambda load: engine.generate(
        load["prompts"],
        library.SamplingParams(max_tokens=load["new_tokens"], ignore_eos=True, temperature=0),
        use_tqdm=False,
    )


def transformers_continuous(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return transformers' continuous batching in bfloat16."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(case["folder"])
    model = AutoModelForCausalLM.from_pretrained(case["folder"], dtype=torch.bfloat16)
    model = model.to(job["device"]).eval()

    def run(load: Mapping[str, Any]) -> None:
        # No token ends a text.
        settings = GenerationConfig(
            max_new_tokens=load["new_tokens"], do_sample=False, eos_token_id=-1
        )
        found = model.generate_batch(
            tokenizer(load["prompts"])["input_ids"], generation_config=settings, progress_bar=False
        )
        counts = {len(each.generated_tokens) for each in found.values()}
        if len(found) != len(load["prompts"]) or counts != {load["new_tokens"]}:
            raise RuntimeError(f"{len(found)} texts of {sorted(counts)} tokens were generated")

    return run


def http(case: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    """Return this kit on TorchServe, asked by as many clients as a batch has requests."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    import httpx  # noqa: PLC0415

    from benchmarks.contenders.kit import Kit  # noqa: PLC0415
    from hf_serve.scripts.paths import MODEL_CONFIGS  # noqa: PLC0415

    mode = MODES[case["part"]]
    folder = Path(case["folder"])
    source = MODEL_CONFIGS / f"{mode}.yaml"
    settings = {"dtype": "bfloat16", "save_mode": "pretrained", "max_rows": 4096}
    contender = Kit("kit", source, folder, Path(job["work"]) / "http", **settings)
    contender.archive.parent.mkdir(parents=True, exist_ok=True)
    contender.pack(checked=False)
    contender.start()
    SERVERS.append(contender)
    client = httpx.Client(timeout=120, trust_env=False)
    clients = ThreadPoolExecutor(job["clients"])

    def ask(texts: Sequence[str]) -> None:
        response = client.post(contender.url, json={"inputs": texts})
        response.raise_for_status()
        response.json()

    def run(load: Mapping[str, Any]) -> None:
        texts, size = load["texts"], job["texts_of_a_request"]
        list(clients.map(ask, (texts[at : at + size] for at in range(0, len(texts), size))))

    return run


# Servers to stop at the end.
SERVERS = list[Any]()
CONTENDERS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Run]] = {
    "peak": peak,
    "kit": kit,
    "kit_http": http,
    "transformers": transformers,
    "sentence_transformers": sentence_transformers,
    "transformers_continuous": transformers_continuous,
    "vllm": vllm,
}


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("RAYON_NUM_THREADS", "8")
    try:
        main()
    finally:
        for server in SERVERS:
            server.stop()
