"""Run in a fresh process by test_disk_cache.py: compile a program, run it, and say what was done for it.

python cached_process.py FILE.mlir       # prints the result's sum, and which stages ran
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def main() -> None:
    import hlojit
    from hlojit import compiler
    from hlojit.cpu import backend
    from hlojit.machine_code import loading, object_code

    done = {"parsed": 0, "emitted": 0, "compiled": 0}

    def counting(name: str, function: object) -> object:
        def call(*arguments: object, **named: object) -> object:
            done[name] += 1
            return function(*arguments, **named)  # type: ignore[operator]

        return call

    compiler.parse = counting("parsed", compiler.parse)  # type: ignore[assignment]
    backend._emit = counting("emitted", backend._emit)  # type: ignore[assignment]
    object_code.compile_to_object = counting("compiled", object_code.compile_to_object)  # type: ignore[assignment]
    loading.compile_to_object = object_code.compile_to_object
    executable = hlojit.compile(Path(sys.argv[1]).read_text())
    inputs = [np.full(kind.shape, 0.5, kind.element_type.storage) for kind in executable.input_types]
    print(float(np.sum(executable(*inputs))), done)


if __name__ == "__main__":
    main()
