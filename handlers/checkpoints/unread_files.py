"""Files of a checkpoint that say more than this kit computes: heads, and weights in other formats.

    config_setfit.json, model_head.pkl     a classifier of SetFit behind a sentence-transformer
    language_model/5gram.bin               the n-grams by which pyctcdecode chooses words
    quantize_config.json, without quantization_config in config.json       old weights of GPTQ
    quantization in config.json                                            weights of MLX

A head in another file is never loaded: most are pickles. The model before it is served for its
vectors, and what is left out is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.documents import read_json
from ..config.handler_section import CUSTOM_MODE, HandlerSection
from ..config.messages import quote
from ..errors import WrongCheckpoint
from .checkpoint_files import BGE_M3, files_in

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Find = Callable[[Collection[str]], list[str]]

SETFIT = "config_setfit.json"
SETFIT_HEAD = "model_head.pkl"
# The tokenizer of Mistral's own format.
TEKKEN = "tekken.json"
# The configs of weights of AutoGPTQ and AutoAWQ, which config.json has since transformers 4.32.
QUANTIZED = ("quantize_config.json", "quant_config.json")
# What each has, by the library.
BITS = frozenset(["bits", "w_bit", "q_group_size"])
# Parts of models in separate files, at the root of a repository.
PARTS = re.compile(
    r"(.*[_.-])?(head|heads|classifier|clf|linear|dense|proj|projection|pooler|adapter|adapter_model"
    r"|calibrator|label_encoder)([_.-].*)?"
    r"\.(pkl|pickle|joblib|skops|pt|pth|bin|npz|npy|safetensors)",
    re.IGNORECASE,
)
# The processor of speech whose decoder reads the n-grams of a folder.
PROCESSOR_FILE = "preprocessor_config.json"
OF_N_GRAMS, N_GRAMS = "ProcessorWithLM", "language_model"
N_GRAM_FILES = re.compile(rf"{N_GRAMS}/[^/]+\.(bin|arpa|klm)(\.gz)?")
SHOWN = 3
# Code that the containers of Hugging Face and SageMaker run, and this kit where the YAML names it.
CODE = ("handler.py", "code/inference.py")


def unread_parts(names: Collection[str]) -> list[str]:
    """Return the files of a repository or folder with parts of a model that are not read."""
    found = {name for name in names if "/" not in name and PARTS.fullmatch(name)}
    found |= {name for name in names if N_GRAM_FILES.fullmatch(name)}
    if SETFIT in names:
        found.add(SETFIT_HEAD)
    return sorted(found - {*BGE_M3} if {*BGE_M3} <= {*names} else found)


def unread_files(names: Collection[str]) -> list[str]:
    """Return the files with parts of a model or with code that are not read by themselves."""
    return unread_parts(names) + [name for name in CODE if name in names]


def describe_unread(parts: Collection[str]) -> str | None:
    """Return what is left out of a model, as a sentence; None where nothing is."""
    if not parts:
        return None
    shown = ", ".join(f"{name:.80}" for name in sorted(parts)[:SHOWN])
    more = f" and {len(parts) - SHOWN:,} others" if len(parts) > SHOWN else ""
    kind = ", the head of a SetFit classifier," if [*parts] == [SETFIT_HEAD] else ""
    if len(parts) == 1 and next(iter(parts)).startswith(N_GRAMS):
        kind = ", the n-grams by which pyctcdecode chooses words,"
    verb, them = ("is", "it") if len(parts) == 1 else ("are", "them")
    code = next((name for name in CODE if name in parts), "")
    remedy = f" {code} runs where the YAML names it as handler.custom." if code else ""
    return (
        f"{shown}{more}{kind} {verb} left out: answers come from the model without {them}.{remedy}"
    )


def describe_unread_of(
    directory: Path, handler: HandlerSection, find: Find = unread_parts
) -> str | None:
    """Return what is left out of the model in a folder, as a sentence; None where nothing is.

    Code of the user's own may read any file, and then nothing is said.
    """
    if handler.custom or handler.mode == CUSTOM_MODE or not directory.is_dir():
        return None
    found = find(files_in(directory))
    has_n_grams = any(name.startswith(N_GRAMS) for name in found)
    # A download has the name of the processor alone.
    missing = [N_GRAMS] if _reads_n_grams(directory) and not has_n_grams else []
    return describe_unread([*found, *missing])


def _reads_n_grams(directory: Path) -> bool:
    with suppress(OSError, ValueError):
        found = read_json(directory / PROCESSOR_FILE)
        return isinstance(found, dict) and str(found.get("processor_class")).endswith(OF_N_GRAMS)
    return False


def is_setfit(names: Collection[str]) -> bool:
    """Return whether a repository or folder has a classifier of SetFit."""
    return SETFIT in names or SETFIT_HEAD in names


def setfit_error(place: str) -> WrongCheckpoint:
    """Return the error of a SetFit checkpoint that would be a classifier."""
    return WrongCheckpoint(
        place,
        f"is a SetFit classifier, whose head is a pickle ({SETFIT_HEAD}), which can execute code"
        " and which this kit never loads",
        "serve its vectors with mode: sentence_embedding, or train a classifier with a head of"
        " transformers",
    )


def _is_quantized(path: Path) -> bool:
    """Return whether a config is of quantized weights, and not of an export by transformers.js."""
    with suppress(OSError, ValueError):
        found = read_json(path)
        return isinstance(found, dict) and not BITS.isdisjoint(found)
    return False


def check_read(directory: Path, config: PreTrainedConfig, place: str, *, has_head: bool) -> None:
    """Check that the files of a folder are all of the model that a mode computes.

    Args:
        place: the name of the checkpoint, for errors.
        has_head: whether the mode needs a head.

    Raises:
        WrongCheckpoint: its head is in a file that is not loaded, or its weights are in a format
            that its config does not name.
    """
    if has_head and is_setfit([path.name for path in directory.glob("*[._]*")]):
        raise setfit_error(place)
    if getattr(config, "quantization_config", None) is None:
        old = next((name for name in QUANTIZED if _is_quantized(directory / name)), None)
        if old is not None:
            raise WrongCheckpoint(
                place,
                f"has quantized weights by its {old}, and no quantization_config in config.json",
                "use the checkpoint that it was made from, or one whose config.json has"
                " quantization_config",
            )
    settings = getattr(config, "quantization", None)
    if isinstance(settings, dict) and "group_size" in settings:
        raise WrongCheckpoint(
            place,
            f"has weights of MLX in {quote(settings.get('bits'))} bits (quantization in"
            " config.json), which transformers does not read",
            "use the checkpoint that it was made from",
        )
