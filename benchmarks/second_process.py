"""How long a second process takes from text to executable, with the caches on disk of hlojit and of JAX.

    python -m benchmarks.second_process [gpt2_forward]

Each figure is of a fresh process, imports excluded, the median of several.  JAX's is ``Lowered.compile()`` with its
persistent compilation cache: what comes before, from the Python function to StableHLO, is not counted.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEAT = 5


def measure_hlojit(name: str, folder: str) -> float:
    """Seconds from text to executable."""
    import hlojit
    import hlojit.compiler
    import hlojit.executable
    import hlojit.ir.text.parser
    import hlojit.machine_code.loading
    import hlojit.progress
    import numba  # noqa: F401 - an import that only some programs need
    from hlojit.extensions import registry

    registry().load()
    text = Path(folder, f"{name}.mlir").read_text()
    os.environ["HLOJIT_CACHE"] = str(Path(folder, "hlojit"))
    start = time.perf_counter()
    hlojit.compile(text)
    return time.perf_counter() - start


def measure_jax(name: str, folder: str) -> float:
    """Seconds from the lowered program to the executable."""
    import jax

    from benchmarks import programs

    jax.config.update("jax_compilation_cache_dir", str(Path(folder, "jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    program = getattr(programs, name)()
    lowered = jax.jit(program.function).lower(*program.arguments)
    start = time.perf_counter()
    lowered.compile()
    return time.perf_counter() - start


MEASURES = {"hlojit": measure_hlojit, "jax": measure_jax}


def in_process(peer: str, name: str, folder: str) -> float:
    """One figure, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.second_process", name, peer, folder]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(name: str) -> None:
    """Print the first process's time and the median of the later ones', for both."""
    from benchmarks import programs

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"{name}.mlir").write_text(getattr(programs, name)().text())
        for peer in MEASURES:
            first = in_process(peer, name, folder)
            later = statistics.median(in_process(peer, name, folder) for _ in range(REPEAT))
            print(
                f"{name:16} {peer:8} first {first * 1e3:8.1f} ms   second {later * 1e3:8.1f} ms   {later / first:.1%}"
            )


def main() -> None:
    """Compare, or measure in this process."""
    if len(sys.argv) == 4:
        print(MEASURES[sys.argv[2]](sys.argv[1], sys.argv[3]))
        return
    for name in sys.argv[1:] or ["gpt2_forward"]:
        compare(name)


if __name__ == "__main__":
    main()
