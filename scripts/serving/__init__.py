"""Servers: start, readiness, draining, rollout, ports, settings, tokens, fork server, gRPC."""
