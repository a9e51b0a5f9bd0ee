"""What ``jit`` is told about a function: one record, with which the function can be jitted again in another process."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from hlojit.extensions import CompileOptions
from hlojit.tracing.calls.parameters import argument_names, argument_numbers


@final
@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """The options of ``jit``, in the form in which they are kept."""

    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]
    backend: str | tuple[str, ...] | None
    options: CompileOptions | Mapping[str, Any] | None
    plugins: tuple[Any, ...]
    donate_argnums: tuple[int, ...]
    donate_argnames: tuple[str, ...]
    rounding_seed: str | None
    check_indices: bool

    @classmethod
    def of(
        cls,
        *,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        backend: str | Sequence[str] | None = None,
        options: CompileOptions | Mapping[str, Any] | None = None,
        plugins: Sequence[Any] = (),
        donate_argnums: int | Sequence[int] = (),
        donate_argnames: str | Sequence[str] = (),
        rounding_seed: str | None = None,
        check_indices: bool = True,
    ) -> Settings:
        """As they are given; raises ``HlojitError`` where numbers or names of parameters are none."""
        return cls(
            argument_numbers("static_argnums", static_argnums),
            argument_names("static_argnames", static_argnames),
            backend if backend is None or isinstance(backend, str) else tuple(backend),
            # What the caller's mapping becomes later is no matter of what was decorated before.
            copy.deepcopy(options) if isinstance(options, Mapping) else options,
            tuple(plugins),
            argument_numbers("donate_argnums", donate_argnums),
            argument_names("donate_argnames", donate_argnames),
            rounding_seed,
            check_indices,
        )
