"""The door for vendors: hooks, the registry, and the records that a plugin is made of.

A plugin that needs more than what is exported here needs a hook that is missing: tell us.
"""

from collections.abc import Callable
from typing import Any

from hlojit.extensions.backends.backend import (
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
from hlojit.extensions.backends.layouts import ROW_MAJOR, Layout, LayoutPlan, Layouts, assign_layouts
from hlojit.extensions.backends.registered import API_VERSION
from hlojit.extensions.calls.array_calls import ArrayCall
from hlojit.extensions.calls.custom_calls import (
    CallTypes,
    CustomCall,
    DeclaredCall,
    ExpansionCall,
    call_config,
    called_functions,
)
from hlojit.extensions.calls.elementwise_calls import CallSite, ElementwiseCall
from hlojit.extensions.calls.foreign_calls import ForeignCall, foreign_handler
from hlojit.extensions.calls.foreign_frames import ForeignFrame
from hlojit.extensions.calls.kernel_calls import KernelCall, KernelSite, Launch
from hlojit.extensions.devices.buffers import DEVICE_MEMORY, HOST_MEMORY, Buffer, MemorySpace
from hlojit.extensions.devices.device import Device, DeviceProgram
from hlojit.extensions.devices.events import READY, Event, Queue
from hlojit.extensions.devices.profiles import Profile, Timing, profiling
from hlojit.extensions.functions.array_functions import ArrayFunction
from hlojit.extensions.kernels.forms import CudaKernel, KernelPhase, LlvmKernel, TaskFunction
from hlojit.extensions.kernels.kernel import (
    AnchorPattern,
    BuiltKernel,
    CompositePattern,
    Declined,
    Kernel,
    KernelGroup,
    OpPattern,
    SubgraphPattern,
    kernel_answer,
)
from hlojit.extensions.machines.interpreted import InterpretedBackend, InterpretedDevice
from hlojit.extensions.machines.machine import Held, Machine, MachineKernel
from hlojit.extensions.machines.started import Started
from hlojit.extensions.registration.checks import PluginRecord
from hlojit.extensions.registration.hooks import hookimpl, hookspec
from hlojit.extensions.registration.op_fields import AttributeKinds
from hlojit.extensions.registration.registry import Registry, registry
from hlojit.ir.attributes import (
    Attribute,
    ConvDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
)
from hlojit.ir.block_formats import BlockFormat, Scaling
from hlojit.ir.builder import Builder
from hlojit.ir.environment import Environment, current, process_environment
from hlojit.ir.errors import HlojitError, PluginError, PluginWarning, TypeInferenceError, UnsupportedError
from hlojit.ir.formats import ElementType, FloatFormat, NanEncoding, Overflow, Rounding
from hlojit.ir.graph import Function, Instruction, Module, Value
from hlojit.ir.ops.definition import (
    AttributeSpec,
    Constraint,
    Cost,
    Expand,
    Indexed,
    InferenceRequest,
    OpDefinition,
    Operand,
    Pointwise,
    PointwiseCall,
    Reduction,
    Trait,
)
from hlojit.ir.ops.pointwise import like_operands
from hlojit.ir.passes.fusion_limits import FusionLimits
from hlojit.ir.passes.pass_manager import Pass, PassEvent
from hlojit.ir.scalar.builder import Scalar, ScalarBuilder
from hlojit.ir.scalar.calls import ScalarFunction, set_function_compiler, set_function_evaluator
from hlojit.ir.types import TensorType, Type


def _compile_function(function: Callable[..., Any], kinds: tuple[str, ...], result: str, user: str) -> ScalarFunction:
    from hlojit.extensions.functions.numba_bridge import compile_scalar

    return compile_scalar(function, kinds, result, user)


set_function_compiler(_compile_function)


def _evaluate_function(function: Callable[..., Any], kinds: tuple[str, ...], result: str) -> Callable[..., Any]:
    from hlojit.extensions.functions.array_evaluation import applied

    return applied(function, kinds, result)


set_function_evaluator(_evaluate_function)

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
    "ROW_MAJOR",
    "YES",
    "AnchorPattern",
    "ArrayCall",
    "ArrayFunction",
    "Attribute",
    "AttributeKinds",
    "AttributeSpec",
    "Backend",
    "BlockFormat",
    "Buffer",
    "Builder",
    "BuiltKernel",
    "CallSite",
    "CallTypes",
    "Capability",
    "CompileOptions",
    "CompositePattern",
    "Constraint",
    "ConvDimensionNumbers",
    "Cost",
    "CudaKernel",
    "CustomCall",
    "DeclaredCall",
    "Declined",
    "Device",
    "DeviceProgram",
    "DotDimensionNumbers",
    "ElementType",
    "ElementwiseCall",
    "Environment",
    "Event",
    "Expand",
    "ExpansionCall",
    "FloatFormat",
    "ForeignCall",
    "ForeignFrame",
    "Function",
    "FusionLimits",
    "GatherDimensionNumbers",
    "Held",
    "HlojitError",
    "Indexed",
    "InferenceRequest",
    "Instruction",
    "InterpretedBackend",
    "InterpretedDevice",
    "Kernel",
    "KernelCall",
    "KernelGroup",
    "KernelPhase",
    "KernelSite",
    "Launch",
    "Layout",
    "LayoutPlan",
    "Layouts",
    "LlvmKernel",
    "Machine",
    "MachineKernel",
    "MemorySpace",
    "Module",
    "NanEncoding",
    "OpDefinition",
    "OpPattern",
    "Operand",
    "Overflow",
    "Pass",
    "PassEvent",
    "PluginError",
    "PluginRecord",
    "PluginWarning",
    "Pointwise",
    "PointwiseCall",
    "Profile",
    "Queue",
    "Reduction",
    "Registry",
    "Rounding",
    "Scalar",
    "ScalarBuilder",
    "Scaling",
    "ScatterDimensionNumbers",
    "SizedCode",
    "Started",
    "SubgraphPattern",
    "Support",
    "TaskFunction",
    "TensorType",
    "Timing",
    "Trait",
    "Type",
    "TypeInferenceError",
    "UnsupportedError",
    "Value",
    "assign_layouts",
    "call_config",
    "called_functions",
    "can_decompose",
    "current",
    "foreign_handler",
    "hookimpl",
    "hookspec",
    "kernel_answer",
    "like_operands",
    "no",
    "process_environment",
    "profiling",
    "register",
    "registry",
    "scope",
    "unregister",
    "using",
]
