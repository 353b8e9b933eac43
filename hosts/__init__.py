"""Programs other than TorchServe, one package each: one URL for all models (`asgi/`), Ray Serve,
Ray Data and KServe's SDK.

They use an archive's own `handlers` package, so its engine and protocols are those of TorchServe's
worker. Nothing in `handlers` imports them.
"""
