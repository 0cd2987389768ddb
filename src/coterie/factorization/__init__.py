"""Federated matrix factorisation: one paper algorithm a file."""
