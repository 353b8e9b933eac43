"""Processes on other machines with parts of a model that TorchServe serves: `parallelType: tp`.

TorchServe starts torchrun on its own machine only. `scripts/join_model.py` starts it on another
one, where `follow.py` computes its part of each batch.
"""
