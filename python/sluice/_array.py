"""Arrays of any number of axes in files: NumPy's .npy files, and raw ones, read and written by parts.

A part is described, not copied together: slices of a million rows are one request to each server,
and go straight between the file and NumPy's memory, whatever its strides are.
"""

from __future__ import annotations

import ast
import ctypes
from ctypes import byref, c_int64, sizeof
from typing import TYPE_CHECKING, Any, Iterator, List, NoReturn, Optional, Sequence, Tuple

from . import _lib

if TYPE_CHECKING:
    from ._fs import File


def _dtype(text: str, file: "File") -> Any:
    """What an element is, by its name in the file's header."""
    import numpy

    if len(text) < _lib.DTYPE_BYTES - 1:  # else it was cut off
        return numpy.dtype(ast.literal_eval(text) if text.startswith("[") else text)
    headers: Any = numpy.lib.format
    file.seek(0)
    first = headers.read_magic(file) == (1, 0)
    read = headers.read_array_header_1_0 if first else headers.read_array_header_2_0
    return read(file)[2]


def _numbers(values: Sequence[Any]) -> ctypes.Array[c_int64]:
    return (c_int64 * len(values))(*(_lib.int64(v) for v in values))


class Array:
    """An array in a file. a[1:3, ::-2] reads a part into a new NumPy array, a[1:3] = b writes one.

    Indices are integers, slices with any step, and one `...`. Elements are moved as they are: the
    dtype of what is written is converted first if it is another one. Safe for use by many threads.
    Make one with FileSystem.array, create_array or raw_array; it owns its file.
    """

    def __init__(self, file: "File", handle: Any, dtype: Any = None) -> None:
        if not handle:
            file._failed()
        self.file, self._lib, self._handle = file, file._lib, handle
        info = _lib.ArrayInfo(size=sizeof(_lib.ArrayInfo))
        if self._lib.array_info(handle, byref(info)) != 0:
            self._failed()
        self.shape: Tuple[int, ...] = tuple(info.shape[: info.axes])
        self.offset, self.nbytes = int(info.offset), int(info.bytes)
        self.order = "F" if info.flags & _lib.FORTRAN else "C"
        self.dtype: Any = dtype if dtype is not None else _dtype(info.dtype.decode(), file)

    def __repr__(self) -> str:
        return f"<sluice.Array {self.file.name} {self.shape} {self.dtype} {self.order}>"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for count in self.shape:
            n *= count
        return n

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    # ---- parts

    def __getitem__(self, index: Any) -> Any:
        return self.read(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.write(value, index)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if copy is False:
            raise ValueError("an array in a file is read into memory: that is a copy")
        whole = self.read()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def read(self, index: Any = ..., out: Any = None) -> Any:
        """Reads a part, into out if there is one: an array of the part's shape and of this dtype,
        with any strides. It returns it; a single element as a scalar."""
        import numpy

        slices, shape, kept = self._part(index)
        if out is None:
            order: Any = self.order
            into = numpy.empty(kept, self.dtype, order)
        else:
            into = out
            if not isinstance(into, numpy.ndarray) or into.dtype != self.dtype:
                raise ValueError(f"out is no array of {self.dtype}")
            if into.shape != kept or not into.flags.writeable:
                raise ValueError(f"out is no writable array of the part's shape {kept}")
        self._move(self._lib.array_read, slices, shape, into)
        return into[()] if out is None and kept == () else into

    def write(self, value: Any, index: Any = ...) -> None:
        """Writes a part: value is made as large as the part by NumPy's rules, without a copy where
        its dtype is the array's."""
        import numpy

        slices, shape, kept = self._part(index)
        data = numpy.broadcast_to(numpy.asarray(value, self.dtype), kept)
        self._move(self._lib.array_write, slices, shape, data)

    def _move(self, call: Any, slices: Any, shape: Tuple[Optional[int], ...], memory: Any) -> None:
        """memory lives until the call is over. Axes that it lacks have one place, so that their
        strides do not matter."""
        if self.dtype.hasobject:
            raise TypeError("elements that refer to objects of Python are not in files")
        if 0 in memory.shape:
            return
        strides = iter(memory.strides)
        steps = _numbers([0 if count is None else next(strides) for count in shape])
        if call(self._open(), slices, memory.ctypes.data, steps) < 0:
            self._failed()

    def _part(self, index: Any) -> Tuple[Any, Tuple[Optional[int], ...], Tuple[int, ...]]:
        """The slices of an index; the length of its part along each axis, None where an integer has
        taken it; and the part's shape."""
        given: List[Any] = list(index) if isinstance(index, tuple) else [index]
        dots = [i for i, one in enumerate(given) if one is Ellipsis]
        if len(dots) > 1:
            raise IndexError("an index has only one ellipsis")
        missing = self.ndim - len(given) + len(dots)
        if missing < 0:
            raise IndexError(f"{len(given)} indices for {self.ndim} axes")
        at = dots[0] if dots else len(given)
        given[at:at + len(dots)] = [slice(None)] * missing
        slices = (_lib.Slice * max(self.ndim, 1))()
        shape: List[Optional[int]] = []
        for axis, (one, count) in enumerate(zip(given, self.shape)):
            if isinstance(one, slice):
                places = range(*one.indices(count))
                slices[axis] = _lib.Slice(places.start, len(places), places.step)
                shape.append(len(places))
                continue
            try:
                place = _lib.int64(one)
            except TypeError:
                raise IndexError("an index is an integer, a slice, or ...") from None
            if not -count <= place < count:
                raise IndexError(f"index {place} is out of bounds for axis {axis} with size {count}")
            slices[axis] = _lib.Slice(place % count, 1, 1)
            shape.append(None)
        return slices, tuple(shape), tuple(n for n in shape if n is not None)

    # ---- tiles

    def tiles(self, shape: Sequence[int], ghost: Optional[Sequence[int]] = None, *,
              wrap: bool = False) -> "Tiles":
        """The array, cut into boxes of one shape. ghost: how many of its neighbours' cells a tile is
        read with, at both ends of each axis. Outside of the array they are zero, or, if it wraps,
        those of its other end."""
        return Tiles(self, shape, ghost, wrap)

    # ---- life

    def sync(self) -> None:
        """Returns when all that was written is on disks."""
        if self._lib.array_sync(self._open()) != 0:
            self._failed()

    def close(self) -> None:
        """Ends the array and its file."""
        handle, self._handle = self._handle, None
        if handle:
            self._lib.array_close(handle)
        self.file.close()

    def __enter__(self) -> "Array":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _open(self) -> Any:
        if self._handle is None:
            raise ValueError("the array is closed")
        return self._handle

    def _failed(self) -> NoReturn:
        self.file._failed()


class Tiles:
    """An array in boxes of one shape, numbered along each axis from 0; those at the end are smaller."""

    def __init__(self, array: Array, shape: Sequence[int], ghost: Optional[Sequence[int]],
                 wrap: bool) -> None:
        axes = array.ndim
        for what in (shape, ghost):
            if what is not None and len(what) != axes:
                raise ValueError(f"{len(what)} lengths for {axes} axes")
        self.array, self._lib = array, array._lib
        self._shape = _numbers(shape)
        self._ghost = None if ghost is None else _numbers(ghost)
        flags = (_lib.WRAP if wrap else 0) | (_lib.COLUMN_MAJOR if array.order == "F" else 0)
        self._c = _lib.Tiling(size=sizeof(_lib.Tiling), flags=flags,
                              shape=ctypes.addressof(self._shape),
                              ghost=0 if self._ghost is None else ctypes.addressof(self._ghost))
        grid = _numbers([0] * axes)
        if self._lib.array_grid(array._open(), byref(self._c), grid) != 0:
            array._failed()
        self.grid: Tuple[int, ...] = tuple(grid)
        """How many tiles there are along each axis."""

    def __iter__(self) -> Iterator[Tuple[int, ...]]:
        """The places of all tiles, the last axis the fastest."""
        import itertools

        return itertools.product(*(range(n) for n in self.grid))

    def box(self, at: Sequence[int]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
        """Where a tile lies with its ghost cells: its first place, and the one behind its last along
        each axis. They may be outside of the array."""
        low, high, _, _ = self._box(at)
        return tuple(low), tuple(high)

    def _box(self, at: Sequence[int]) -> Tuple[List[int], List[int], Any, int]:
        if len(at) != self.array.ndim:
            raise IndexError(f"{len(at)} indices for {self.array.ndim} axes")
        place, low, high = _numbers(at), _numbers([0] * len(at)), _numbers([0] * len(at))
        n = self._lib.array_tile_box(self.array._open(), byref(self._c), place, low, high)
        if n < 0:
            self.array._failed()
        return list(low), list(high), place, n

    def read(self, at: Sequence[int]) -> Any:
        """A tile with its ghost cells."""
        import numpy

        low, high, place, n = self._box(at)
        order: Any = self.array.order
        inside = all(a >= 0 and b <= m for a, b, m in zip(low, high, self.array.shape))
        make = numpy.empty if inside else numpy.zeros  # what lies outside is not read
        into = make([b - a for a, b in zip(low, high)], self.array.dtype, order)
        self._move(self._lib.array_read_tile, place, into, n)
        return into

    def write(self, at: Sequence[int], data: Any) -> None:
        """Writes a tile without its ghost cells, of which data has as many as read gives."""
        import numpy

        low, high, place, n = self._box(at)
        order: Any = self.array.order
        shape = [b - a for a, b in zip(low, high)]
        memory = numpy.asarray(numpy.broadcast_to(data, shape), self.array.dtype, order)
        self._move(self._lib.array_write_tile, place, memory, n)

    def _move(self, call: Any, place: Any, memory: Any, n: int) -> None:
        if self.array.dtype.hasobject:
            raise TypeError("elements that refer to objects of Python are not in files")
        if call(self.array._open(), byref(self._c), place, memory.ctypes.data, n) < 0:
            self.array._failed()
