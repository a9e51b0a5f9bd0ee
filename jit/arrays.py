"""Arrays that enter and leave compiled programs.

Inside, a tensor is a C-contiguous NumPy array of its element type's storage dtype.  Outside it has NumPy's or
ml_dtypes' dtype where there is one; a format without a dtype travels as ``Array``::

    values = Array.from_values(np.float32([1.5, 2.0]), element_type("f8E4M3_mine"))
    np.asarray(values)          # the numbers, float32 again
    values.storage              # their codes, uint8

An ``Array`` is also what stays on a device between calls, of whatever element type (``hlojit.put``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeGuard, final

import numpy as np
from hlojit.array_codes import check_codes, have_same_codes
from hlojit.ir.block_formats import BlockFormat
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.fork_gate import fork_gate
from hlojit.ir.formats import (
    BooleanType,
    ComplexType,
    ElementType,
    FloatFormat,
    IntegerType,
    element_type,
    element_type_of,
    find_element_type,
)
from hlojit.ir.types import TensorType, tensor
from hlojit.plain_arrays import as_ndarray, described_array, on_the_host, plain, with_shape

if TYPE_CHECKING:
    from hlojit.extensions.devices.buffers import Buffer
    from hlojit.extensions.devices.device import Device

NDArray = np.ndarray[Any, Any]


@final
class Array:
    """An array of a format that NumPy has no dtype for, or an array on a device.

    On the host it is the encoded values (``storage``) and the element type.  On a device it is a ``Buffer``: contents
    that do not change, that may still be on their way (``wait``), and that NumPy's protocols copy back when asked.
    Of a block format it is several arrays, its ``parts``, all on the host or all on one device.
    """

    __slots__ = ("__weakref__", "_buffer", "_parts", "_storage", "element_type")

    def __init__(self, storage: NDArray, element: ElementType | str):
        if isinstance(element, str):
            element = _row(element)
        if isinstance(element, BlockFormat):
            raise HlojitError(f"an Array of {element} has parts: make it by Array.from_values or Array.from_parts")
        if storage.dtype != element.storage:
            raise HlojitError(f"an Array of {element} is stored as {element.storage}, not as {storage.dtype}")
        check_codes(storage, element, f"an Array of {element}")
        self._storage: NDArray | None = storage
        self._buffer: Buffer | None = None
        self._parts: tuple[Array, ...] = ()
        self.element_type = element

    @classmethod
    def _from_codes(cls, storage: NDArray, element: ElementType) -> Array:
        """An array of codes that are known to be the element type's: a program made them."""
        made = cls.__new__(cls)
        made._storage = storage
        made._buffer = None
        made._parts = ()
        made.element_type = element
        return made

    @classmethod
    def from_buffer(cls, buffer: Buffer) -> Array:
        """The array on a device that a buffer holds."""
        made = cls.__new__(cls)
        made._storage = None
        made._buffer = buffer
        made._parts = ()
        made.element_type = buffer.type.element_type
        return made

    @classmethod
    def from_values(cls, values: Any, element: ElementType | str) -> Array:
        """Encode numbers into a float format, each rounded to nearest even as the format says."""
        if isinstance(element, str):
            element = _row(element)
        if isinstance(element, BlockFormat):
            with fork_gate.inside:
                from hlojit.block_arrays import parts_of_numbers

            numbers = values.to_values() if isinstance(values, Array) else on_the_host(values, "the values")
            coded = parts_of_numbers(numbers, element)
            return cls.in_blocks([cls._from_codes(codes, type_.element_type) for codes, type_ in coded], element)
        if not isinstance(element, FloatFormat):
            raise HlojitError(f"Array.from_values encodes float formats, {element} is none")
        with fork_gate.inside:
            from hlojit.ir.scalar.arrays import encode_array, exact_floats
            from hlojit.ir.scalar.exact_numbers import encode_numbers

        numbers = np.asarray(values)
        if numbers.dtype.kind == "c":
            raise HlojitError(f"Array.from_values encodes real numbers; {element} has no imaginary parts")
        if element.in_integers and numbers.dtype not in (np.float32, np.float64):
            encoded = encode_numbers(list(numbers.flat), element)
        else:
            encoded = encode_array(numbers if numbers.dtype == np.float64 else exact_floats(numbers), element)
        storage = np.ascontiguousarray(encoded).view(element.storage).reshape(numbers.shape)
        check_codes(storage, element, f"the encode function of {element}")
        return cls._from_codes(storage, element)

    @classmethod
    def from_parts(cls, parts: Sequence[Any], element: ElementType | str) -> Array:
        """The array of a block format that consists of ``parts``: elements, scales and, of two levels, the tensor's scale.

        They are shared, not copied, and all on the host or all on one device.  Raises ``ArgumentError`` where shapes or
        element types do not fit together.
        """
        if isinstance(element, str):
            element = _row(element)
        if not isinstance(element, BlockFormat):
            raise HlojitError(f"Array.from_parts is for block formats, {element} is none")
        with fork_gate.inside:
            from hlojit.block_arrays import checked_parts

        return cls.in_blocks(checked_parts(parts, element, _as_part), element)

    @classmethod
    def in_blocks(cls, parts: Sequence[NDArray | Array], element: ElementType) -> Array:
        """The array of a block format of parts that are known to fit together."""
        made = cls.__new__(cls)
        made._storage = None
        made._buffer = None
        made._parts = tuple(
            part if isinstance(part, Array) else cls._from_codes(part, row)
            for part, row in zip(parts, getattr(element, "part_formats", ()))
        )
        made.element_type = element
        return made

    @property
    def parts(self) -> tuple[NDArray | Array, ...]:
        """Of a block format its elements, its scales and, of two levels of scales, the tensor's scale; else the array itself."""
        if not self._parts:
            return (self,)
        return tuple(part if part.device is not None else from_storage(part.storage, part.type) for part in self._parts)

    def to_values(self) -> NDArray:
        """Decode to an array of the format's compute type (float32 or float64), exactly."""
        if isinstance(self.element_type, BlockFormat):
            with fork_gate.inside:
                from hlojit.block_arrays import numbers_of_parts

            return numbers_of_parts([part.storage for part in self._parts], self.element_type)
        if not isinstance(self.element_type, FloatFormat):
            return self.storage
        with fork_gate.inside:
            from hlojit.ir.scalar.arrays import decode_array

        return np.asarray(decode_array(self.storage, self.element_type))

    # -------------------------------------------------------------- on a device

    @property
    def buffer(self) -> Buffer | None:
        """The buffer on a device, or None for an array on the host."""
        return self._buffer

    @property
    def device(self) -> Device | None:
        """The device, or None for an array on the host."""
        if self._parts:
            return self._parts[0].device
        return None if self._buffer is None else self._buffer.device

    @property
    def is_ready(self) -> bool:
        """Whether the contents are there, or will never be: ``wait`` returns or raises at once."""
        if self._parts:
            return all(part.is_ready for part in self._parts)
        return self._buffer is None or self._buffer.ready.ready

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the contents; False if ``timeout`` seconds were not enough.

        Raises ``ExecutionError`` if the program that makes them failed, or one that it depends on.
        """
        if self._parts:
            end = None if timeout is None else time.monotonic() + timeout
            return all(part.wait(None if end is None else max(end - time.monotonic(), 0)) for part in self._parts)
        return self._buffer is None or self._buffer.ready.wait(timeout)

    def delete(self) -> None:
        """Give the memory on the device back now; using the array is an error from then on."""
        if self.device is None:
            raise HlojitError("an Array on the host is not deleted; drop it")
        for part in self._parts:
            part.delete()
        if self._buffer is not None:
            self._buffer.delete()

    # ---------------------------------------------------------------- contents

    @property
    def storage(self) -> NDArray:
        """The encoded values; of an array on a device a copy, or a read-only view where the host can read the memory."""
        if self._storage is not None:
            return self._storage
        if self._buffer is None:
            raise HlojitError(
                f"an Array of {self.element_type} is several arrays, .parts; its numbers are .to_values()"
            )
        view = self._buffer.host_view()
        return self._buffer.to_host() if view is None else view

    @property
    def type(self) -> TensorType:
        """The tensor type."""
        if self._buffer is not None:
            return self._buffer.type
        if self._parts:
            return tensor(self._parts[0].shape, self.element_type)
        assert self._storage is not None
        return tensor(self._storage.shape, self.element_type)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self.type.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.type.rank

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    @property
    def nbytes(self) -> int:
        """Bytes of the storage, or of all parts; on a device those that they take there."""
        if self._parts:
            return sum(part.nbytes for part in self._parts)
        return self.type.nbytes if self._buffer is None else self._buffer.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an Array without dimensions has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        # What NumPy has no dtype for are numbers there; their codes have a name, .storage.
        is_coded = self.element_type.dtype is None
        if copy is False and (dtype is not None or not self._is_readable or is_coded):
            raise ValueError("the array's elements cannot be had in this form without a copy")
        if dtype is None and not is_coded:
            array = from_storage(self.storage, self.type)
            assert isinstance(array, np.ndarray)
            return array.copy() if copy else array
        return np.array(self.to_values(), dtype=dtype)

    @property
    def _is_readable(self) -> bool:
        """Whether NumPy can read the elements where they are."""
        return self._buffer is None or self._buffer.memory_space.is_host

    def _refuse_codes(self) -> None:
        if self.element_type.dtype is None:
            codes = ".parts" if self._parts else ".storage (the codes)"
            raise BufferError(f"DLPack and buffers have no type for {self.element_type}; pass {codes}, or .to_values()")

    def __dlpack__(self, **options: Any) -> Any:
        self._refuse_codes()
        wanted = options.get("dl_device")
        if self._lies_on(wanted):
            return self._capsule(options)
        if self._buffer is not None and not self._is_readable and (wanted is None or wanted[0] != _DLPACK_CPU):
            raise BufferError(f"the array is in the memory of {self._buffer.device}; hlojit.get copies it to the host")
        array, version = np.asarray(self), options.get("max_version")
        says_read_only = version is not None and tuple(version) >= _DLPACK_READ_ONLY_FROM
        if not (array.flags.writeable or says_read_only or options.get("copy") is False):
            # Whoever knows no read-only arrays may write to what it gets: it gets memory of its own.
            options = {**options, "copy": True}
        return array.__dlpack__(**options)

    def _lies_on(self, wanted: tuple[int, int] | None) -> bool:
        """Whether other libraries can have the memory itself, on the device that they want."""
        place = None if self._buffer is None else self._buffer.device.dlpack_device
        return place is not None and (wanted is None or tuple(wanted) == place)

    def _capsule(self, options: dict[str, Any]) -> Any:
        """The memory on the device for another library, which may use it on any stream: the contents are waited for."""
        with fork_gate.inside:
            from hlojit.runtime.dlpack_devices import capsule_of
        assert self._buffer is not None
        if options.get("copy"):
            raise BufferError("hlojit makes no copy on a device for DLPack; copy what you get")
        place, dtype = self._buffer.device.dlpack_device, self.element_type.dtype
        if place is None or dtype != self.element_type.storage:
            raise BufferError(f"DLPack has no type for {self.element_type}; hlojit.get copies the array to the host")
        address = self._buffer.lent_address()
        return capsule_of(address, self.shape, dtype, place, self._buffer.memory(), version=options.get("max_version"))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory on a CUDA device for another library; the contents are waited for."""
        dtype = self.element_type.dtype
        if not self._lies_on(None) or dtype != self.element_type.storage or dtype.isbuiltin != 1:
            raise AttributeError("__cuda_array_interface__ is of arrays on CUDA devices, of NumPy's own element types")
        assert self._buffer is not None
        return {
            "shape": self.shape,
            "typestr": dtype.str,
            "data": (self._buffer.lent_address(), False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        self._refuse_codes()
        if self._buffer is not None and self._buffer.device.dlpack_device is not None:
            return self._buffer.device.dlpack_device
        if self._buffer is not None and not self._is_readable:
            return _DLPACK_EXTENSION, self._buffer.device.id
        return _DLPACK_CPU, 0

    def __buffer__(self, flags: int) -> memoryview:
        # PEP 688: Python 3.12 and later ask for it.  NumPy asks first, hides what is raised here, Ctrl-C too, and then
        # takes __array__: so nothing waits or transfers here.
        self._refuse_codes()
        if not self._is_readable or not self.is_ready:
            raise BufferError(f"the elements of {self!r} are not in the host's memory; numpy.asarray brings them there")
        return self.__array__().data

    def item(self) -> Any:
        """The number that an array of one element holds, as a Python object."""
        return self.to_values().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.to_values())

    def __repr__(self) -> str:
        buffers = [part._buffer for part in self._parts or (self,) if part._buffer is not None]
        if buffers:
            # Neither waits nor transfers.
            state = "" if all(each.ready.ready for each in buffers) else ", pending"
            state = ", deleted" if any(each.is_deleted for each in buffers) else state
            return f"Array(on {buffers[0].device}{state}, {self.type})"
        try:
            values = np.array2string(self.to_values(), separator=", ", prefix="Array(")
        except ImportError:
            values = np.array2string(self.storage, separator=", ", prefix="Array(")
        return f"Array({values}, {self.type})"


_DLPACK_CPU: Final = 1
_DLPACK_EXTENSION: Final = 12
_DLPACK_READ_ONLY_FROM: Final = (1, 0)
"""The version whose capsules say whether memory may be written; a consumer that names none knows older ones."""


def is_in_blocks(value: object) -> TypeGuard[Array]:
    """Whether a value is an array of a block format."""
    return isinstance(value, Array) and isinstance(value.element_type, BlockFormat)


def _as_part(part: Any, type_: TensorType, where: str) -> Array:
    """A part of an array in blocks, shared."""
    if isinstance(part, Array) and part.device is not None:
        if part.type != type_:
            raise ArgumentError(f"{where}: expected {type_}, got {part.type}")
        return part
    return Array(to_storage(part, type_, where), type_.element_type)


def _row(name: str) -> ElementType:
    """The element type of a name, which an installed plugin may bring."""
    with fork_gate.inside:
        from hlojit.extensions import registry

    registry().load()
    return element_type(name)


def row_of_now(element: ElementType) -> ElementType:
    """The element type that the name of an array's element type means in the current environment.

    Raises ``ArgumentError`` where it was registered again and the array's codes would be misread.
    """
    row = find_element_type(element.name)
    if row is None or have_same_codes(element, row):
        return row or element
    raise ArgumentError(f"an Array of {element}: {_RENEWED.format(element)}; make it again")


_RENEWED: Final = "{} was registered again since the array was made"


def is_outside_form_different(type_: TensorType) -> bool:
    """Whether arrays of this type look different outside (``Array``, or sub-byte integers of ml_dtypes)."""
    return type_.element_type.dtype != type_.element_type.storage


def from_storage(storage: NDArray, type_: TensorType) -> NDArray | Array:
    """The outside form of a result."""
    element = type_.element_type
    if element.dtype is None:
        return Array._from_codes(storage, element)
    return storage if element.dtype == storage.dtype else storage.astype(element.dtype)


# ------------------------------------------------------------------------------------------------------- arguments


def to_storage(value: object, type_: TensorType, where: str) -> NDArray:
    """Return ``value`` as a plain array (C-contiguous, aligned, native byte order) of the type's storage dtype.

    Takes NumPy arrays and scalars, ``Array``, Python numbers for rank 0, and whatever offers DLPack, the buffer
    protocol or NumPy's array interface; memory is shared where its form allows.  Values are never cast: another element
    type or shape is an ``ArgumentError`` that begins with ``where``.  So is a plain array where NumPy has no dtype for the
    elements: integers might be numbers or codes, and floats would have to be rounded.
    """
    if isinstance(value, Array):
        if not have_same_codes(value.element_type, type_.element_type):
            renewed = value.element_type.name == type_.element_type.name
            hint = f"; {_RENEWED.format(value.element_type)}" if renewed else ""
            raise ArgumentError(f"{where}: expected {type_}, got {value.type}{hint}")
        return plain(with_shape(value.storage, type_, where), type_.element_type.storage, where)
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return _from_number(value, type_, where)
    given = as_ndarray(value, type_, where)
    # Another thread may give the array another dtype between the question and the conversion, which would cast.
    source = given.view()
    element = type_.element_type
    expected = element.dtype
    native = source.dtype.newbyteorder("=")
    if expected is None:
        raise ArgumentError(
            f"{where}: expected {type_}, got {described_array(source)}; encode numbers with "
            f"hlojit.Array.from_values(values, {element.name!r}), or wrap codes as hlojit.Array(codes, {element.name!r})"
        )
    if native != expected:
        hint = f"; convert it with .astype({expected.name!r})" if source.dtype.kind != "O" else ""
        raise ArgumentError(f"{where}: expected {type_}, got {described_array(source)}{hint}")
    made = plain(with_shape(source, type_, where), element.storage, where)
    return given if made is source else made


def _from_number(value: complex, type_: TensorType, where: str) -> NDArray:
    element = type_.element_type
    if type_.rank:
        raise ArgumentError(
            f"{where}: expected {type_}, got the number {value!r}; pass an array of shape {type_.shape}"
        )
    kinds: dict[type[ElementType], tuple[type, ...]] = {
        BooleanType: (bool,),
        IntegerType: (int,),
        FloatFormat: (int, float),
        ComplexType: (int, float, complex),
    }
    accepted = kinds.get(type(element), ())
    if not isinstance(value, accepted) or (isinstance(value, bool) and not isinstance(element, BooleanType)):
        raise ArgumentError(f"{where}: expected {type_}, got {value!r} of Python type {type(value).__name__}")
    if isinstance(element, IntegerType) and not element.minimum <= int(value.real) <= element.maximum:
        raise ArgumentError(f"{where}: {value!r} is outside {type_} ({element.minimum} to {element.maximum})")
    if isinstance(element, FloatFormat) and element.dtype is None:
        return Array.from_values(value, element).storage
    try:
        return np.array(value, dtype=element.storage)
    except OverflowError as error:
        raise ArgumentError(f"{where}: {value!r} does not fit {type_}: {error}") from error


def plain_storage(value: object, where: str) -> tuple[NDArray, TensorType]:
    """Anything that ``to_storage`` takes, as a plain array of a storage dtype, with the tensor type that it has."""
    if isinstance(value, Array):
        return plain(value.storage, value.element_type.storage, where), value.type
    if isinstance(value, (bool, int, float, complex)):
        source: NDArray = np.asarray(value)
    else:
        source = as_ndarray(value, "an array", where)
    try:
        type_ = tensor(source.shape, element_type_of(source.dtype.newbyteorder("=")))
    except HlojitError as error:
        raise ArgumentError(f"{where}: {error}") from None
    return plain(source, type_.element_type.storage, where), type_
