"""What the entry point does with TorchServe's context and messages."""

from __future__ import annotations

import logging
from typing import Any

from ..config.model_config import CONFIG_FILE, ModelConfig
from ..errors import ConfigError
from .streamed_responses import StreamingWorker
from .worker import Worker

logger = logging.getLogger(__name__)


def start_worker(context: Any) -> Worker:
    """Load the model of the archive that TorchServe's context names.

    Raises:
        ConfigError: the YAML, the checkpoint or the archive is invalid.
    """
    where = str(context.manifest["model"].get("configFile", CONFIG_FILE))
    try:
        config = ModelConfig.parse(context.model_yaml_config, where)
        kind = StreamingWorker if config.continuousBatching else Worker
        return kind(context, config)
    except ConfigError as error:
        logger.error("Model not loaded. %s", error)
        raise
