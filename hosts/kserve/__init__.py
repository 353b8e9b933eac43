"""Archives behind the model server of KServe's Python SDK, as a custom serving runtime.

`python -m hosts.kserve ARCHIVE…` (`__main__.py`) loads archives and starts the server. Models are
answered by the project's own routes (`endpoints.py`) in batches (`batcher.py`); the SDK answers what
is about the server: readiness, metadata and metrics (`server.py`).
"""
