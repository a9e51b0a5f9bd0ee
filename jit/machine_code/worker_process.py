"""Processes that compile: started as little as possible of Python's, and one for text that may end the process it is compiled in.

    image = compile_apart(ir, SM_90, pipeline="threads", linked=[theirs], what="kernel k, which calls their_function")

LLVM ends a process that asks it for what a target cannot do (``fatal error: cannot select``).  Our own text is checked before
(``hlojit.simt.intrinsics``); what plugins bring is compiled in a worker (``compile_worker.py``), whose end is an error here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from hlojit.ir.errors import HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.machine_code.compile_worker import Closed, greeting, receive, send

if TYPE_CHECKING:
    from hlojit.machine_code.object_code import Processor

PATIENCE: Final = 120.0
"""Seconds after which a process that compiles one text is given up."""

_KEPT_VARIABLES: Final = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")


def spawn_worker(errors: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start a worker; it ends with its input, and on Linux with the thread that calls this."""
    import llvmlite

    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    package = Path(os.path.abspath(str(sys.modules["hlojit"].__file__))).parent
    options = ["-s", "-P"]
    if package.name == "hlojit" and (package / "ir").is_dir():
        # The two packages are all that it needs; nobody's site hooks are run.
        options.append("-S")
        folders = dict.fromkeys((str(package.parent), str(Path(os.path.abspath(llvmlite.__file__)).parent.parent)))
        environment["PYTHONPATH"] = os.pathsep.join(folders)
    elif "PYTHONPATH" in os.environ:
        # An editable installation, whose finder is a site hook.
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return subprocess.Popen(
        [sys.executable, *options, "-m", "hlojit.machine_code.compile_worker", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        bufsize=0,
        cwd=os.sep,
        env=environment,
        process_group=0,  # Ctrl-C is for the parent
    )


def compile_apart(ir: str, processor: Processor, *, pipeline: str, linked: Iterable[str], what: str) -> bytes:
    """``compile_to_object`` in a process of its own; raises ``HlojitError`` if that says no, ends or takes too long.

    ``what`` names the text for the message.
    """
    texts = [processor.triple, processor.cpu, processor.features, pipeline, ir, *linked]
    with tempfile.TemporaryFile() as errors:
        try:
            status, result = _asked_apart([text.encode() for text in texts], errors)
        except (Closed, OSError) as error:
            errors.seek(0)
            reason = _reason(errors.read().decode(errors="replace"))
            raise HlojitError(f"{what} cannot be compiled for {processor.cpu}: {reason}") from error
    if status != b"ok":
        raise HlojitError(f"{what} cannot be compiled for {processor.cpu}: {result.decode(errors='replace')}")
    return result


def _reason(said: str) -> str:
    lines = [line for line in said.splitlines() if "LLVM ERROR" in line or "error:" in line]
    return f"LLVM ended its process: {lines[0].strip()}" if lines else "LLVM ended its process, or took too long"


def _asked_apart(request: list[bytes], errors: IO[bytes]) -> tuple[bytes, bytes]:
    with fork_gate.inside:
        process = spawn_worker(errors)
    late = threading.Timer(PATIENCE, process.kill)
    late.daemon = True
    late.start()
    try:
        return _asked(process, request)
    finally:
        late.cancel()
        _end(process)


def _asked(process: subprocess.Popen[bytes], request: list[bytes]) -> tuple[bytes, bytes]:
    assert process.stdin is not None and process.stdout is not None
    source = process.stdout.fileno()
    if receive(source) != greeting():
        raise Closed
    send(process.stdin.fileno(), request)
    status, result = receive(source)
    return status, result


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
