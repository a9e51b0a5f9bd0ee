"""The runtime of machines with threads and memory of their own: GPUs of any vendor, and their simulator.

A vendor brings a ``Driver`` (``driver.py``: one GPU in some fifteen functions), a dialect (``hlojit.simt.dialect``) and an
assembler, together a ``Platform``; ``GpuBackend`` compiles for it and ``GpuDevice`` runs what it compiled.
"""
