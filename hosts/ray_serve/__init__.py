"""Archives as Ray Serve deployments, at one URL.

`application.py` has what a `serve.yaml` names: one application for each archive, and one for the
routes, with the application of :mod:`hf_serve.hosts.asgi`. A request goes from it (`ingress.py`) to
a replica of its model (`replica.py`).
"""
