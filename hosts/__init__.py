"""Programs other than TorchServe that run archives, one package each.

A host imports the `handlers` package of an archive, so it has the same engine and protocols as
TorchServe's worker. Nothing in `handlers` imports a host.
"""
