"""``hlojit bisect`` and ``hlojit reduce``."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hlojit.ir.errors import HlojitError

_PATTERN = "{}"
"""What stands for the file in the command of ``hlojit reduce --check``."""


def add_commands(commands: Any) -> None:
    """Add both to the subcommands of ``hlojit``."""
    bisect = commands.add_parser("bisect", help="name the pass, rule, kernel or plugin that makes a program wrong")
    bisect.add_argument("file", metavar="FILE", help="StableHLO text")
    bisect.add_argument("--backend", default="cpu", help="where it is wrong")
    bisect.add_argument("--against", default="reference", help="the back end that is right")
    bisect.add_argument("--input", nargs="+", action="extend", default=[], metavar="X.npy", help="arguments, in order")
    bisect.add_argument("--seed", type=int, default=0, help="of arguments that are made up")
    bisect.add_argument("--ulps", type=float, help="units in the last place by which floats may differ")
    bisect.add_argument("--seconds", type=float, default=60.0, help="for making the program smaller (0: leave it)")
    bisect.set_defaults(run=_bisect)

    reduce = commands.add_parser(
        "reduce", help="make a program smaller as long as a command says that it shows something"
    )
    reduce.add_argument("file", metavar="FILE", help="StableHLO text")
    reduce.add_argument(
        "--check", required=True, metavar="CMD", help="exits with 0 if the file {} (or its last argument) shows it"
    )
    reduce.add_argument("--seconds", type=float, default=300.0, help="how long to go on")
    reduce.add_argument(
        "--timeout", type=float, default=60.0, help="seconds that one check may take; longer: it does not"
    )
    reduce.add_argument("--output", metavar="SMALL", help="where to write the program (default: standard output)")
    reduce.set_defaults(run=_reduce)


def _bisect(options: argparse.Namespace) -> int:
    from hlojit.compiler import parse
    from hlojit.testing.bisection import bisect
    from hlojit.testing.comparison import Tolerance

    module = parse(_text(options), source_name=options.file)
    arrays = None
    if options.input:
        types = [argument.tensor_type for argument in module.main.body.arguments]
        if len(options.input) != len(types):
            raise HlojitError(f"the program takes {len(types)} arguments, {len(options.input)} files were given")
        arrays = [_loaded(path, kind) for path, kind in zip(options.input, types)]
    found = bisect(
        module,
        backend=options.backend,
        against=options.against,
        arguments=arrays,
        tolerance=None if options.ulps is None else Tolerance(ulps=options.ulps),
        seed=options.seed,
        seconds=options.seconds,
        progress=_show,
    )
    _show("")
    print(found)
    return 0


def _loaded(path: str, kind: Any) -> Any:
    """The array of a file in storage form; numbers for an argument in blocks are encoded."""
    import numpy as np
    from hlojit.arrays import Array, to_storage
    from hlojit.ir.ops.block_arithmetic import block_format

    format, found = block_format(kind), np.load(path)
    return to_storage(found, kind, path) if format is None else Array.from_values(found, format)


def _reduce(options: argparse.Namespace) -> int:
    from hlojit.ir.graph import Module
    from hlojit.testing.reduction import reduce

    command = shlex.split(options.check)
    with tempfile.TemporaryDirectory(prefix="hlojit-reduce-") as folder:
        path = Path(folder) / "program.mlir"

        def shows(module: Module) -> bool:
            path.write_text(str(module), encoding="utf-8")
            known = any(_PATTERN in word for word in command)
            words = [word.replace(_PATTERN, str(path)) for word in command] + ([] if known else [str(path)])
            try:
                done = subprocess.run(words, capture_output=True, timeout=options.timeout, check=False)
            except subprocess.TimeoutExpired:
                return False
            return done.returncode == 0

        small = reduce(_text(options), shows, seconds=options.seconds, progress=_show)
    _show("")
    if options.output:
        Path(options.output).write_text(str(small), encoding="utf-8")
    else:
        print(small)
    return 0


def _text(options: argparse.Namespace) -> str:
    return Path(options.file).read_text(encoding="utf-8")


def _show(what: str) -> None:
    """One line on a terminal that is written over."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what[:110]}")
        sys.stderr.flush()
