"""Devices in Python alone: a machine that computes one instruction at a time, and the back end around it."""
