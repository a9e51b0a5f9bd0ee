"""One system's process: compiles a program, checks it, and times it when it is told to.

Line protocol on standard input and output: ``load NAME TEXT_FILE ARGUMENTS_FILE`` answers ``compiled SECONDS``; ``time N``
answers the least and the median of N runs in seconds; ``result FILE`` saves the results.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

WARM_UP = """
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.exponential %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def load_arrays(path: str) -> list[Any]:
    """Arguments as the driver saved them (bf16 travels as its bits)."""
    import ml_dtypes

    with np.load(path) as stored:
        names = json.loads(bytes(stored["dtypes"]).decode())
        arrays = [stored[f"a{number}"] for number in range(len(names))]
    return [
        array.view(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else array
        for array, name in zip(arrays, names)
    ]


def compile_hlojit(text: str, x64: bool) -> Callable[..., Any]:
    """hlojit's executable."""
    import hlojit

    executable: Callable[..., Any] = hlojit.compile(text)
    return executable


def compile_jax(text: str, x64: bool) -> Callable[..., Any]:
    """JAX's CPU executable of the same text, on device arrays, waiting for the results."""
    import jax
    from jax._src import compiler, xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jaxlib.mlir import ir

    jax.config.update("jax_enable_x64", x64)
    backend = xla_bridge.get_backend("cpu")
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
        executable = backend.compile_and_load(module, devices, options)

    def call(*arrays: Any) -> list[Any]:
        results = [each[0] for each in executable.execute_sharded(list(arrays)).disassemble_into_single_device_arrays()]
        for result in results:
            result.block_until_ready()
        return results

    return call


def main() -> None:
    """Serve the driver."""
    system = sys.argv[1]
    compile_program = compile_hlojit if system == "hlojit" else compile_jax
    # Starting LLVM, thread pools and so on is not part of a program's compilation.
    compile_program(WARM_UP, False)
    function: Callable[..., Any] | None = None
    arrays: list[Any] = []
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "load":
            with open(command["text"], encoding="utf-8") as file:
                text = file.read()
            arrays = load_arrays(command["arguments"])
            start = time.perf_counter()
            function = compile_program(text, command["x64"])
            answer: dict[str, Any] = {"compile": time.perf_counter() - start}
            if system == "jax":
                import jax

                arrays = [jax.device_put(array) for array in arrays]
            function(*arrays)
        elif command["do"] == "time":
            assert function is not None
            seconds = []
            for _ in range(command["runs"]):
                start = time.perf_counter()
                function(*arrays)
                seconds.append(time.perf_counter() - start)
            answer = {"least": min(seconds), "median": statistics.median(seconds)}
        else:
            assert function is not None
            results = function(*arrays)
            results = results if isinstance(results, (tuple, list)) else (results,)
            np.savez(command["file"], *[np.asarray(result).astype("f8") for result in results])
            answer = {}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
