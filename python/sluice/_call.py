"""Reads and writes without ctypes: builtin functions that libsluice makes for this interpreter.

A call by ctypes, with the address of a buffer, costs more than a small read. capi/libsluice/python.c
is the other side: it gets the addresses of the interpreter's functions, and so needs none of its
headers.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint, c_void_p, py_object, pythonapi
from typing import Any, Callable

from . import _lib

# What python.c calls, in its order.
_NEEDED = ("PyObject_GetBuffer", "PyBuffer_Release", "PyEval_SaveThread", "PyEval_RestoreThread",
           "PyLong_AsLongLong", "PyLong_FromLongLong", "PyErr_Occurred", "PyErr_BadArgument",
           "PyCFunction_NewEx")

Call = Callable[[int, Any, int], int]
"""call(handle of a file, contiguous buffer, offset): how many bytes, or -errno. The interpreter's
lock is released while it works; the buffer is held."""


class Calls:
    """The functions: pread, pwrite, and append, whose offset means nothing and whose result is where
    it wrote."""

    __slots__ = ("pread", "pwrite", "append")

    def __init__(self, library: _lib.Library) -> None:
        make = ctypes.PYFUNCTYPE(py_object, c_void_p, c_uint)(
            ("sluice_python_function", library.dll))
        addresses = (c_void_p * len(_NEEDED))(
            *(ctypes.cast(getattr(pythonapi, name), c_void_p) for name in _NEEDED))
        self.pread: Call = make(addresses, 0)
        self.pwrite: Call = make(addresses, 1)
        self.append: Call = make(addresses, 2)
