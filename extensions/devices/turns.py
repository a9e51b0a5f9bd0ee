"""Work that has its place in the order of a queue, and is done by the thread that waits for it.

Python handles signals on its main thread: a program that runs there ends on Ctrl-C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, final

from hlojit.extensions.devices.events import acquire
from hlojit.ir.errors import ExecutionError


@final
class Turn:
    """A function as the queue's work; its owner ``run``s it meanwhile, within ``with turn.mine``, which the queue waits for."""

    def __init__(self, function: Callable[..., Any]):
        self._function: Final = function
        self._has_come: Final = threading.Lock()
        self._has_come.acquire()
        self._arguments: tuple[Any, ...] | None = None
        self._returned: Any = None
        self._error: BaseException | None = None
        self._is_over = False
        # The owner's, from before the work is submitted: a lock is given back in one step, which Ctrl-C does not divide.
        self.mine: Final = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        """On the queue's thread: let the owner go on, and wait until he has done so or given up."""
        self._arguments = arguments
        self.come()
        with self.mine:
            pass
        error, self._error = self._error, None
        if error is not None:
            raise error
        if not self._is_over:
            raise ExecutionError("was interrupted")
        returned, self._returned = self._returned, None
        return returned

    def come(self, *_: object) -> None:
        """The turn has come, or never will; once more has no effect."""
        try:
            self._has_come.release()
        except RuntimeError:
            return

    def run(self) -> None:
        """On the owner's thread, which has ``mine``: wait for the turn, and do the work; its errors are the queue's."""
        acquire(self._has_come)
        arguments, self._arguments = self._arguments, None
        if arguments is None:
            return
        try:
            self._returned = self._function(*arguments)
            self._is_over = True
        except (Exception, SystemExit) as error:
            self._error = error
