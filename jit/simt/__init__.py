"""The dialect of machines with threads: plans as kernels of blocks, threads, barriers and shared memory.

One emitter for every such machine.  What differs between them - how a thread knows its number, how a warp shuffles, what
a kernel function looks like - is a ``Dialect`` (``dialect.py``); the NVIDIA back end brings one, a vendor another, and the
simulator's turns barriers and shuffles into what a processor can run.
"""
