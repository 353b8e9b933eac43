"""One URL for all models and every protocol, as an ASGI application.

`python -m hf_serve.hosts.asgi` (`__main__.py`) starts it in front of a running TorchServe
(`torchserve.py`), or with archives in its own process (`in_process.py`). `addresses.py` has the
addresses that name no model in their path, and `application.py` finds the model of a request.
"""
