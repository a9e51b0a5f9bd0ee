"""The door for vendors: hooks, the registry, and the records that a plugin is made of.

A plugin that needs more than what is exported here needs a hook that is missing: tell us.
"""

from collections.abc import Callable
from typing import Any

from hlojit.extensions.backend import (
    DECOMPOSE,
    YES,
    Backend,
    Capability,
    CompileOptions,
    SizedCode,
    Support,
    can_decompose,
    no,
)
from hlojit.extensions.buffers import DEVICE_MEMORY, HOST_MEMORY, Buffer, MemorySpace
from hlojit.extensions.checks import PluginRecord
from hlojit.extensions.custom_calls import CustomCall, ExpansionCall, call_config, called_functions
from hlojit.extensions.devices import Device, DeviceProgram
from hlojit.extensions.elementwise_calls import CallSite, ElementwiseCall
from hlojit.extensions.events import READY, Event, Queue
from hlojit.extensions.foreign_calls import ForeignCall, foreign_handler
from hlojit.extensions.hooks import hookimpl, hookspec
from hlojit.extensions.kernel_calls import KernelCall, KernelSite, Launch
from hlojit.extensions.registered import API_VERSION
from hlojit.extensions.registry import Registry, registry
from hlojit.ir.environment import Environment, current, process_environment
from hlojit.ir.formats import FloatFormat, NanEncoding, Overflow
from hlojit.ir.passes.pass_manager import Pass
from hlojit.ir.scalar.calls import ScalarFunction, set_function_compiler


def _compile_function(function: Callable[..., Any], kinds: tuple[str, ...], result: str, user: str) -> ScalarFunction:
    from hlojit.extensions.numba_bridge import compile_scalar

    return compile_scalar(function, kinds, result, user)


set_function_compiler(_compile_function)

register = registry().register
unregister = registry().unregister
using = registry().using
scope = registry().scope

__all__ = [
    "API_VERSION",
    "DECOMPOSE",
    "DEVICE_MEMORY",
    "HOST_MEMORY",
    "READY",
    "YES",
    "Backend",
    "Buffer",
    "CallSite",
    "Capability",
    "CompileOptions",
    "CustomCall",
    "Device",
    "DeviceProgram",
    "ElementwiseCall",
    "Environment",
    "Event",
    "ExpansionCall",
    "FloatFormat",
    "ForeignCall",
    "KernelCall",
    "KernelSite",
    "Launch",
    "MemorySpace",
    "NanEncoding",
    "Overflow",
    "Pass",
    "PluginRecord",
    "Queue",
    "Registry",
    "SizedCode",
    "Support",
    "call_config",
    "called_functions",
    "can_decompose",
    "current",
    "foreign_handler",
    "hookimpl",
    "hookspec",
    "no",
    "process_environment",
    "register",
    "registry",
    "scope",
    "unregister",
    "using",
]
