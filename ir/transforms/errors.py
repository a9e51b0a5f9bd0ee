"""What is said of an instruction that a transformation cannot take."""

from __future__ import annotations

from hlojit.ir.errors import UnsupportedError
from hlojit.ir.graph import Instruction


def refused(instruction: Instruction, what: str, why: str) -> UnsupportedError:
    """The error for one instruction: what is not supported, and why (or what to do)."""
    target = instruction.attributes.get("call_target_name") or instruction.attributes.get("name")
    name = f"{instruction.op.name} ({target})" if isinstance(target, str) else instruction.op.name
    return UnsupportedError(f"{what} of {name}", "", why, instruction.location)


def no_derivative(instruction: Instruction, why: str = "") -> UnsupportedError:
    """The error for an op without a derivative."""
    advice = (
        "the record of the op has no rule `derivative`; write one, or give the function that calls it one by "
        "hlojit.custom_jvp or hlojit.custom_vjp"
    )
    return refused(instruction, "the derivative", why or advice)
