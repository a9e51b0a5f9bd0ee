"""Executables of back ends made in Python: a callable on arrays behind the same argument checks and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from hlojit.arrays import from_storage, to_storage
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.types import TensorType


@final
class PythonExecutable:
    """Calls a Python function on checked arrays; returns one array, or a tuple unless there is exactly one output."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Sequence[Any]],
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
    ):
        self.name = name
        self.function = function
        self.input_types = tuple(inputs)
        self.output_types = tuple(outputs)

    def __call__(self, *arguments: object) -> Any:
        if len(arguments) != len(self.input_types):
            raise ArgumentError(f"{self.name} takes {len(self.input_types)} arguments, {len(arguments)} were given")
        arrays = [
            to_storage(value, kind, f"{self.name}: argument {number}")
            for number, (value, kind) in enumerate(zip(arguments, self.input_types))
        ]
        results = [np.ascontiguousarray(result).reshape(kind.shape)
                   for result, kind in zip(self.function(*arrays), self.output_types)]
        for number, (result, kind) in enumerate(zip(results, self.output_types)):
            if result.dtype != kind.element_type.storage:
                raise HlojitError(f"{self.name}: the back end returned {result.dtype} for result {number}, a {kind}")
        wrapped = tuple(from_storage(result, kind) for result, kind in zip(results, self.output_types))
        return wrapped[0] if len(wrapped) == 1 else wrapped

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, types)) for types in (self.input_types, self.output_types))
        return f"<PythonExecutable {self.name}: ({inputs}) -> ({outputs})>"
