"""Archives behind the model server of KServe's Python SDK, as a custom serving runtime.

`python -m hosts.kserve ARCHIVE…` (`__main__.py`) loads archives and starts the server. The routes
in `endpoints.py` answer requests to models, in batches (`hosts/batcher.py`). The SDK answers
requests about the server: readiness, metadata and metrics (`server.py`).
"""
