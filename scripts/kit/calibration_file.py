"""The file with the requests that calibrate and evaluate an exported model."""

from __future__ import annotations

from pathlib import Path

from handlers.config.model_config import ModelConfig
from scripts.kit.places import ARTIFACTS


def calibration_file(config_path: Path, config: ModelConfig, artifacts: Path = ARTIFACTS) -> Path:
    """Return the file that `handler.calibration` names, or that of the mode in `artifacts`."""
    default = artifacts / config.handler.mode / "calibration.jsonl"
    named = config.handler.calibration
    return config_path.parent / named if named else default
