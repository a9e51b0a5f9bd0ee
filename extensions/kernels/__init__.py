"""Kernels by hook: a plugin's own code for an op, a composite or a group of instructions."""
