"""Archives as Ray Serve deployments, with the routes of TorchServe.

`application.py` has what a `serve.yaml` names: one application for each archive, and one for the
routes. A request goes from the routes (`ingress.py`) to a replica of its model (`replica.py`).
"""
