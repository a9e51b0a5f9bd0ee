"""From a kernel's LLVM IR text to PTX and machine code for NVIDIA GPUs, without a GPU.

``assembler.py`` is the interface, ``choice.py`` chooses between ``numba_cuda.py`` (the default) and ``llvm_nvptx.py``;
``cubin.py`` makes machine code of PTX and reads what it uses.
"""
