"""Benchmarks against JAX's CPU back end; see ``python -m benchmarks --help``."""
