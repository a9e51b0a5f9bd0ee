"""Calling a plugin's hooks: what is no plugin, no hook, or no list of what the hook is for, is named with what to write."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final

import pluggy
from hlojit.extensions.registration import hooks
from hlojit.ir.errors import HlojitError, PluginError, short_repr
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.vendor_calls import call_named

_PREFIX: Final = "hlojit_"
_ATTRIBUTES: Final = ("hlojit_api", "hlojit_cases", "hlojit_identity", "hlojit_runtime")
"""What a plugin may have under names that begin so, besides hooks."""


def called_hooks(
    plugin: Any, origin: str, expected: Mapping[str, type], *, is_own: bool
) -> Sequence[tuple[str, Sequence[Any]]]:
    """What a plugin's hooks return, by hook; ``expected`` are the hooks with the classes of what they return.

    ``is_own``: the plugin is hlojit's; a vendor's hook may wait for a thread that forks.
    """
    who = f"plugin {origin}"
    _check_plugin(plugin, who, expected)
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    try:
        found = [name for name in expected if manager.parse_hookimpl_opts(plugin, name) is not None]
    except Exception as error:
        raise PluginError(f"{who}: {error!r}") from error
    for name in found:
        _check_hook(getattr(plugin, name), manager.parse_hookimpl_opts(plugin, name) or {}, f"{who}: hook {name}")
    _check_marks(plugin, who, expected, found)
    returned = []
    for name in found:
        returned.append((name, _items(getattr(plugin, name), f"{who}: hook {name}", expected, name, is_own)))
    return returned


# ------------------------------------------------------------------------------------------------------------ before


def _check_plugin(plugin: Any, who: str, expected: Mapping[str, type]) -> None:
    """Refuse what cannot have hooks, and classes in the place of objects."""
    if isinstance(plugin, type):
        if any(_is_method(plugin, hook) for hook in expected):
            raise PluginError(
                f"{who} is a class, and its hooks are methods; give an instance: register({plugin.__name__}())"
            )
        return
    if plugin is None or isinstance(plugin, (str, bytes, int, float, list, tuple, set, dict)):
        what = "None" if plugin is None else f"a {type(plugin).__name__}"
        raise PluginError(f"{who} is {what}, not a module or object with hooks{_way_to_a_plugin(plugin)}")


def _way_to_a_plugin(given: Any) -> str:
    if isinstance(given, str) and all(part.isidentifier() for part in given.split(".")):
        return f"; import it and give the module: import {given}; register({given})"
    return "; register each of them" if isinstance(given, (list, tuple, set)) else ""


def _is_method(plugin: type, hook: str) -> bool:
    """Whether a hook is a function of the class that wants an object."""
    function = inspect.getattr_static(plugin, hook, None)
    return isinstance(function, FunctionType) and function.__code__.co_argcount > 0


def _check_hook(function: Any, marks: Mapping[str, Any], what: str) -> None:
    """Hooks are plain functions without parameters."""
    if marks.get("wrapper") or marks.get("hookwrapper"):
        raise PluginError(f"{what} is a wrapper; hooks are plain functions that return a list")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PluginError(f"{what} is a coroutine; hooks are plain functions that return a list")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in (2, 4)]
    if needed:
        raise PluginError(f"{what} takes {', '.join(needed)}; hooks take no arguments")


def _check_marks(plugin: Any, who: str, expected: Mapping[str, type], found: Sequence[str]) -> None:
    """Attributes with names like hooks' that are none: misspelt, unmarked, or no functions."""
    for name in _attributes(plugin):
        if not name.startswith(_PREFIX) or name in found or name in _ATTRIBUTES:
            continue
        value = getattr(plugin, name, None)
        if name in expected:
            _refuse_unmarked(name, value, f"{who}{'' if found else ' has no hooks'}", bool(found))
        elif _is_marked(value):
            raise PluginError(f"{who}: {unknown_hook(name, expected)}")
    if not found:
        raise PluginError(f"{who} has no hooks: none of its functions is marked @hookimpl")


def _refuse_unmarked(name: str, value: Any, who: str, has_others: bool) -> None:
    if callable(value):
        raise PluginError(f"{who}{':' if has_others else ';'} {name} lacks the decorator @hookimpl")
    raise PluginError(
        f"{who}{':' if has_others else ';'} {name} is a {type(value).__name__}; write a function marked @hookimpl that returns it"
    )


def _attributes(plugin: Any) -> Iterable[str]:
    try:
        return [name for name in dir(plugin) if isinstance(name, str)]
    except Exception:
        return list(getattr(plugin, "__dict__", {}))


def _is_marked(value: Any) -> bool:
    try:
        return getattr(value, f"{hooks.PROJECT}_impl", None) is not None
    except Exception:
        return False


def unknown_hook(name: str, known: Iterable[str]) -> str:
    """A message for a hook that there is not, with a near one."""
    short = {hook.removeprefix(_PREFIX): hook for hook in known}
    near = difflib.get_close_matches(name.removeprefix(_PREFIX), short, n=1)
    return f"there is no hook {name!r}; " + (
        f"did you mean {short[near[0]]!r}?" if near else f"hooks are {', '.join(short.values())}"
    )


# ------------------------------------------------------------------------------------------------------------- after


def _items(
    function: Callable[[], Any], what: str, expected: Mapping[str, type], hook: str, is_own: bool
) -> Sequence[Any]:
    """What a hook returns, as a list of objects of the class that it is for."""
    kind = expected[hook]

    def call() -> tuple[Any, Any]:
        returned = function()
        is_list = isinstance(returned, Iterable) and not isinstance(returned, (kind, str, bytes, Mapping))
        return returned, list(returned) if is_list else None

    returned: Any
    items: list[Any] | None
    try:
        returned, items = (
            call_named(lambda: what, call) if is_own else call_named(lambda: what, fork_gate.outside, call)
        )
    except HlojitError as error:
        if is_own or type(error) is not HlojitError:
            raise
        # Of what the hook makes: a format that cannot be.
        raise PluginError(f"{what}: {error}") from error
    if items is None:
        raise PluginError(f"{what} returned {_no_list(returned, kind)}")
    for item in items:
        if not isinstance(item, kind):
            raise PluginError(
                f"{what} returned {short_repr(item)}, expected {kind.__name__} objects{_way_to_an_item(item, kind, expected)}"
            )
    return items


def _no_list(returned: Any, kind: type) -> str:
    if isinstance(returned, kind):
        name = type(returned).__name__
        return f"one {name}; return a list of them: [{name}(...)]"
    if isinstance(returned, Mapping):
        return f"a {type(returned).__name__}; return a list of {kind.__name__} objects"
    return f"{short_repr(returned)}, expected a list of {kind.__name__} objects"


def _way_to_an_item(item: Any, kind: type, expected: Mapping[str, type]) -> str:
    if isinstance(item, type) and issubclass(item, kind):
        return f"; give an instance: {item.__name__}()"
    right = next((hook for hook, other in expected.items() if isinstance(item, other)), None)
    return f"; return it from {right}" if right else ""
