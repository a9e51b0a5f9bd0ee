"""Arrays that enter and leave compiled programs.

Inside, a tensor is a C-contiguous NumPy array of its element type's storage dtype.  Outside it has NumPy's or
ml_dtypes' dtype where there is one; a format without a dtype travels as ``Array``::

    values = Array.from_values(np.float32([1.5, 2.0]), element_type("f8E4M3_mine"))
    np.asarray(values)          # the bits, as NumPy sees them
    values.to_values()          # float32 again
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
from hlojit.ir.errors import ArgumentError, HlojitError
from hlojit.ir.formats import BooleanType, ComplexType, ElementType, FloatFormat, IntegerType, element_type
from hlojit.ir.types import TensorType, tensor

NDArray = np.ndarray[Any, Any]


@final
class Array:
    """An array of a format that NumPy has no dtype for: the encoded values (``storage``) and the element type."""

    __slots__ = ("element_type", "storage")

    def __init__(self, storage: NDArray, element: ElementType | str):
        if isinstance(element, str):
            element = element_type(element)
        if storage.dtype != element.storage:
            raise HlojitError(f"an Array of {element} is stored as {element.storage}, not as {storage.dtype}")
        self.storage = storage
        self.element_type = element

    @classmethod
    def from_values(cls, values: Any, element: ElementType | str) -> Array:
        """Encode numbers into a float format, each rounded to nearest even as the format says."""
        if isinstance(element, str):
            element = element_type(element)
        if not isinstance(element, FloatFormat):
            raise HlojitError(f"Array.from_values encodes float formats, {element} is none")
        from hlojit.ir.scalar.arrays import encode_array

        encoded = encode_array(np.asarray(values, _compute_dtype(element)), element)
        return cls(np.ascontiguousarray(encoded).view(element.storage).reshape(np.shape(values)), element)

    def to_values(self) -> NDArray:
        """Decode to an array of the format's compute type (float32 or float64), exactly."""
        if not isinstance(self.element_type, FloatFormat):
            return self.storage
        from hlojit.ir.scalar.arrays import decode_array

        return np.asarray(decode_array(self.storage, self.element_type))

    @property
    def type(self) -> TensorType:
        """The tensor type."""
        return tensor(self.storage.shape, self.element_type)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return tuple(self.storage.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.storage.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.storage.size

    @property
    def nbytes(self) -> int:
        """Bytes of the storage."""
        return self.storage.nbytes

    def __len__(self) -> int:
        return len(self.storage)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if dtype is None:
            return self.storage if not copy else self.storage.copy()
        return np.array(self.to_values(), dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.storage.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.storage.__dlpack_device__()

    def __repr__(self) -> str:
        try:
            values = np.array2string(self.to_values(), separator=", ", prefix="Array(")
        except ImportError:
            values = np.array2string(self.storage, separator=", ", prefix="Array(")
        return f"Array({values}, {self.type})"


def _compute_dtype(element: FloatFormat) -> np.dtype[Any]:
    return np.dtype(np.float64 if element.compute == "f64" else np.float32)


def is_outside_form_different(type_: TensorType) -> bool:
    """Whether arrays of this type look different outside (``Array``, or sub-byte integers of ml_dtypes)."""
    return type_.element_type.dtype != type_.element_type.storage


def from_storage(storage: NDArray, type_: TensorType) -> NDArray | Array:
    """The outside form of a result."""
    element = type_.element_type
    if element.dtype is None:
        return Array(storage, element)
    return storage if element.dtype == storage.dtype else storage.astype(element.dtype)


# ------------------------------------------------------------------------------------------------------- arguments

_SEQUENCES: Final = (list, tuple, set, dict, str)


def to_storage(value: object, type_: TensorType, where: str) -> NDArray:
    """Return ``value`` as a plain array (C-contiguous, aligned, native byte order) of the type's storage dtype.

    Takes NumPy arrays and scalars, ``Array``, Python numbers for rank 0, and whatever offers DLPack, the buffer
    protocol or NumPy's array interface; memory is shared where its form allows.  Values are never cast: another element
    type or shape is an ``ArgumentError`` that begins with ``where``.
    """
    if isinstance(value, Array):
        if value.element_type != type_.element_type:
            raise ArgumentError(f"{where}: expected {type_}, got {value.type}")
        return _plain(_with_shape(value.storage, type_, where), type_.element_type.storage)
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return _from_number(value, type_, where)
    source = _as_ndarray(value, type_, where)
    element = type_.element_type
    expected = element.dtype
    native = source.dtype.newbyteorder("=")
    if expected is None:
        if native != element.storage:
            raise ArgumentError(
                f"{where}: expected {type_}, got {_describe(source)}; wrap the encoded values as hlojit.Array, or "
                f"encode numbers with hlojit.Array.from_values(values, {element.name!r})"
            )
    elif native != expected:
        hint = f"; convert it with .astype({expected.name!r})" if source.dtype.kind != "O" else ""
        raise ArgumentError(f"{where}: expected {type_}, got {_describe(source)}{hint}")
    return _plain(_with_shape(source, type_, where), element.storage)


def _describe(source: NDArray) -> str:
    shape = ", ".join(map(str, source.shape)) + ("," if source.ndim == 1 else "")
    return f"an array of dtype {source.dtype} and shape ({shape})"


def _with_shape(source: NDArray, type_: TensorType, where: str) -> NDArray:
    if source.shape != type_.shape:
        raise ArgumentError(f"{where}: expected {type_}, got {_describe(source)}")
    return source


def _plain(source: NDArray, storage: np.dtype[Any]) -> NDArray:
    if source.dtype != storage:
        source = source.astype(storage)
    result = np.require(np.asarray(source), requirements=("C", "A"))
    # Two dtype objects can be equal; the call path compares addresses.
    return result if result.dtype is storage and type(result) is np.ndarray else result.view(np.ndarray).view(storage)


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


def _as_ndarray(value: object, type_: TensorType, where: str) -> NDArray:
    """View a foreign array as a NumPy array, without a copy where its protocol allows."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{where}: a masked array; its mask would be lost: pass .filled(...) or .data")
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if value is None or isinstance(value, _SEQUENCES):
        raise ArgumentError(
            f"{where}: expected {type_}, got a Python {type(value).__name__}; pass an array "
            "(numpy.asarray(...) makes one)"
        )
    if hasattr(value, "__dlpack__"):
        from hlojit.runtime.dlpack import from_dlpack

        return from_dlpack(value, where)
    try:
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        return np.asarray(memoryview(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(
            f"{where}: expected {type_}, got an object of type {type(value).__name__}, which is not an array "
            f"(no DLPack, no buffer protocol, no array interface): {error}"
        ) from error
