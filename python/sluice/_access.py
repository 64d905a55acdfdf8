"""Which bytes of a file, or of memory, a request means; and where Python's objects lie in memory."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int, c_ssize_t, c_void_p, py_object
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _lib


class _Buffer(ctypes.Structure):
    """Py_buffer of CPython."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", ctypes.POINTER(c_ssize_t)),
        ("strides", ctypes.POINTER(c_ssize_t)),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_WRITABLE, _STRIDES = 0x0001, 0x0018
_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes, _get.restype = [py_object, ctypes.POINTER(_Buffer), c_int], c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes, _release.restype = [ctypes.POINTER(_Buffer)], None


class Held:
    """The memory of an object, which stays where it is until release: address, nbytes, strides."""

    __slots__ = ("_view", "address", "nbytes", "itemsize", "shape", "strides")

    def __init__(self, obj: Any, writable: bool) -> None:
        self._view: Optional[_Buffer] = None
        view = _Buffer()
        _get(obj, ctypes.byref(view), _STRIDES | (_WRITABLE if writable else 0))
        self._view = view
        self.address = view.buf or 0
        self.nbytes, self.itemsize = view.len, view.itemsize
        self.shape = tuple(view.shape[i] for i in range(view.ndim))
        self.strides = tuple(view.strides[i] for i in range(view.ndim))

    def release(self) -> None:
        if self._view is not None:
            _release(ctypes.byref(self._view))
            self._view = None

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()

    def vector(self) -> "Vector":
        """The bytes of the object, in the order of its indices, as offsets from address."""
        block, dims = self.itemsize, list(zip(self.shape, self.strides))
        if any(stride < 0 for count, stride in dims if count > 1):
            raise ValueError("an array with negative strides: copy it first")
        while dims and (dims[-1][1] == block or dims[-1][0] == 1):
            block *= dims.pop()[0]
        if len(dims) > 8:
            raise ValueError("an array of more than 8 dimensions that is not contiguous")
        return Vector(0, block, dims)


class Vector(NamedTuple):
    """A nested vector: block bytes, repeated by dims of (count, stride), the outermost first."""

    off: int
    block: int
    dims: Sequence[Tuple[int, int]] = ()

    def __len__(self) -> int:
        n = self.block
        for count, _ in self.dims:
            n *= count
        return n


Pieces = Sequence[Tuple[int, int]]
"""A list of (offset, length). A NumPy array of shape (n, 2) and type int64 is used as it is."""

Access = Union[Vector, Pieces]


def _pieces(pairs: Sequence[Tuple[int, int]]) -> ctypes.Array[_lib.Piece]:
    int64 = _lib.int64
    return (_lib.Piece * len(pairs))(*(_lib.Piece(int64(a), int64(b)) for a, b in pairs))


class Described:
    """An access as C has it, and what must live as long as it."""

    __slots__ = ("c", "keep")

    def __init__(self, access: Access) -> None:
        self.c = _lib.CAccess()
        self.keep: List[Any] = []
        if isinstance(access, Vector):
            self.c.kind, self.c.count = 1, len(access.dims)
            self.c.off, self.c.block = _lib.int64(access.off), _lib.int64(access.block)
            dims = _pieces(access.dims)
            self.c.dims = ctypes.addressof(dims)
            self.keep.append(dims)
            return
        if getattr(access, "dtype", None) == "int64":
            held = Held(access, False)
            if held.shape[1:] == (2,) and held.strides == (16, 8):
                self.c.count, self.c.pieces = held.shape[0], held.address
                self.keep.append(held)
                return
            held.release()
        pieces = _pieces(access)
        self.c.count, self.c.pieces = len(pieces), ctypes.addressof(pieces)
        self.keep.append(pieces)


class Transfer:
    """A list request as C has it."""

    __slots__ = ("memory", "access", "hints", "keep")

    def __init__(self, buffer: Any, access: Access, memory: Optional[Access],
                 parents: Sequence[Any], writable: bool) -> None:
        held = Held(buffer, writable)
        self.keep: List[Any] = [held]
        file = Described(access)
        described = Described(held.vector() if memory is None else memory)
        self.keep += [file, described]
        if memory is not None:
            within(held, memory)
        self.access = file.c
        self.memory = _lib.CMemory(held.address or ctypes.addressof(c_char()), described.c)
        self.hints: Optional[_lib.Hints] = None
        if parents:
            list_ = (_lib.Parent * len(parents))()
            for to, parent in zip(list_, parents):
                memory, pin = parent if isinstance(parent, tuple) else (parent, 0)
                of = Held(memory, False)
                self.keep.append(of)
                to.base, to.len = of.address, of.nbytes
                to.pin = _lib.whole(ctypes.c_uint64, pin)
            self.keep.append(list_)
            self.hints = _lib.Hints(ctypes.sizeof(_lib.Hints), len(parents), list_)


def within(held: Held, access: Access) -> None:
    """Refuses an access that leaves the memory of an object: C could not know."""
    if isinstance(access, Vector):
        ends = [access.off + access.block + sum(max(c - 1, 0) * s for c, s in access.dims)]
        begins = [access.off]
    elif getattr(access, "dtype", None) == "int64":
        ends = [int((access[:, 0] + access[:, 1]).max())] if len(access) else []  # type: ignore
        begins = [int(access[:, 0].min())] if len(access) else []  # type: ignore
    else:
        ends = [off + n for off, n in access]
        begins = [off for off, _ in access]
    if any(begin < 0 for begin in begins) or any(end > held.nbytes for end in ends):
        raise ValueError(f"pieces reach out of the {held.nbytes} bytes of memory")
