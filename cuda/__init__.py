"""The NVIDIA back end: a plugin like any other, over what every GPU shares (``hlojit.gpu``, ``hlojit.simt``).

This folder is called ``cuda``, as NVIDIA's own namespace package is (``cuda.bindings``, which numba-cuda imports).  When
the repository's root is on ``sys.path``, ``import cuda`` finds this file: it then steps aside by extending the package's
path to the other ``cuda`` folders and leaving this one out.
"""

if __name__ == "cuda":
    import os
    import pkgutil

    _here = os.path.realpath(os.path.dirname(__file__))
    __path__ = [folder for folder in pkgutil.extend_path(__path__, __name__) if os.path.realpath(folder) != _here]
