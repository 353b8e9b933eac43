"""Where a family's positions begin."""

from __future__ import annotations

import re

from transformers import PreTrainedConfig

OFFSET_FAMILIES = re.compile("roberta|camembert|longformer|mpnet|esm|data2vec-text|luke|ibert|xmod")


def first_position(config: PreTrainedConfig) -> int:
    """Return the position of a text's first token.

    RoBERTa and its kin leave the positions up to the padding id unused.
    """
    return int(config.pad_token_id or 0) + 1 if OFFSET_FAMILIES.search(config.model_type) else 0
