"""Graphs to graphs of their derivatives (``differentiation``) and of many at once (``vectorization``), by the op records."""
