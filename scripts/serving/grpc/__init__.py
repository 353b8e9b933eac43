"""The gRPC gateway in front of TorchServe."""
