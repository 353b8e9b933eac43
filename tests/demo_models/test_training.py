from __future__ import annotations

from random import Random

from hf_serve.demo_models.training import Feature, batches, chunks, collate


def feature(length: int) -> Feature:
    ids = list(range(1, length + 1))
    return {"input_ids": ids, "attention_mask": [1] * length, "labels": ids}


def test_rows_are_padded_on_the_right_with_the_value_of_each_key() -> None:
    batch = collate([feature(1), feature(3)], pad_id=9)
    assert batch["input_ids"].tolist() == [[1, 9, 9], [1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[1, -100, -100], [1, 2, 3]]


def test_a_single_label_is_not_padded() -> None:
    rows: list[Feature] = [{"input_ids": [5], "labels": 1}, {"input_ids": [6, 7], "labels": 0}]
    assert collate(rows, pad_id=0)["labels"].tolist() == [1, 0]


def test_every_row_occurs_once_in_a_batch_of_similar_lengths() -> None:
    features = [feature(1 + number % 10) for number in range(200)]
    made = list(batches(features, 10, 0, Random(0)))
    lengths = [int(mask.sum()) for batch in made for mask in batch["attention_mask"]]
    assert sorted(lengths) == sorted(len(row["input_ids"]) for row in features)
    padding = sum(int((batch["attention_mask"] == 0).sum()) for batch in made)
    assert padding < sum(lengths) / 20


def test_the_order_depends_on_the_seed() -> None:
    features = [feature(1 + number) for number in range(40)]
    first, again, other = (
        [batch["input_ids"].shape for batch in batches(features, 4, 0, Random(seed))]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_the_last_chunk_may_be_shorter() -> None:
    assert chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
