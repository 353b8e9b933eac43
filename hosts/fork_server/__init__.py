"""A fork server of workers: a process that has imported their packages, and forks each of them.

TorchServe starts `PYTHON …/model_service_worker.py …`. Its PYTHON is a script that runs
:mod:`~hosts.fork_server.launcher`, which passes arguments, environment, folder and file
descriptors to :mod:`~hosts.fork_server.server`, and has the exit code of the worker.
:mod:`~hosts.fork_server.start` starts the server together with TorchServe.
"""
