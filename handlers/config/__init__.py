"""The model-config.yaml: its keys, their types and their defaults."""

from .model_config import ModelConfig

__all__ = ["ModelConfig"]
