"""A process whose threads factorize matrices while it forks; the children factorize one, too.  Ends with 0 if all did."""

from __future__ import annotations

import os
import signal
import threading

import hlojit
import numpy as np

SIZE, THREADS, FORKS = 96, 3, 4
TEXT = f"""func.func @main(%x: tensor<{SIZE}x{SIZE}xf64>) -> tensor<{SIZE}x{SIZE}xf64> {{
  %0 = stablehlo.cholesky %x, lower = true : tensor<{SIZE}x{SIZE}xf64>
  return %0 : tensor<{SIZE}x{SIZE}xf64>
}}"""
EIGENVALUES = f"""func.func @main(%x: tensor<{SIZE}x{SIZE}xf64>) -> tensor<{SIZE}xf64> {{
  %0:3 = stablehlo.custom_call @lapack_dsyevd_ffi(%x) {{
    operand_layouts = [dense<[0, 1]> : tensor<2xindex>], api_version = 4 : i32,
    result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<> : tensor<0xindex>],
    mhlo.backend_config = {{mode = 86 : ui8, uplo = 76 : ui8}}
  }} : (tensor<{SIZE}x{SIZE}xf64>) -> (tensor<{SIZE}x{SIZE}xf64>, tensor<{SIZE}xf64>, tensor<i32>)
  return %0#1 : tensor<{SIZE}xf64>
}}"""


def main() -> None:
    x = np.random.default_rng(0).standard_normal((SIZE, SIZE))
    x = x @ x.T + SIZE * np.eye(SIZE)
    programs = [hlojit.compile(text) for text in (TEXT, EIGENVALUES)]
    expected = [program(x) for program in programs]
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for program in programs:
                program(x)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for _ in range(FORKS):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            same = all(np.array_equal(program(x), before) for program, before in zip(programs, expected))
            os._exit(0 if same else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"child ended with {status}"
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


if __name__ == "__main__":
    main()
