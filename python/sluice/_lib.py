"""libsluice by ctypes: its structures, its functions, and errors that become OSError.

sluice.h is the contract; this file says the same in the words of ctypes.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import signal
from ctypes import (
    POINTER,
    Structure,
    Union,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, List, NoReturn, Optional


class Options(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("credential", c_char_p),
        ("secret", c_char_p),
        ("providers", c_char_p),
        ("progress", c_char_p),
        ("name", c_char_p),
        ("buffers", c_uint64),
        ("retain", c_uint64),
        ("pinned", c_uint64),
        ("wait_ms", c_uint32),
        ("reserved", c_uint32),
    ]


class CLayout(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("width", c_uint32),
        ("unit", c_uint64),
        ("pool", c_char * 64),
    ]


class Piece(Structure):
    _fields_ = [("off", c_int64), ("len", c_int64)]


class _Parts(Union):
    _fields_ = [("pieces", c_void_p), ("dims", c_void_p)]


class CAccess(Structure):
    _anonymous_ = ("u",)
    _fields_ = [
        ("kind", c_uint32),
        ("count", c_uint32),
        ("u", _Parts),
        ("off", c_int64),
        ("block", c_int64),
    ]


class CMemory(Structure):
    _fields_ = [("base", c_void_p), ("access", CAccess)]


class Parent(Structure):
    _fields_ = [("base", c_void_p), ("len", c_uint64), ("pin", c_uint64)]


class Hints(Structure):
    _fields_ = [("size", c_uint32), ("count", c_uint32), ("parents", POINTER(Parent))]


class Request(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("op", c_uint32),
        ("file", c_void_p),
        ("tag", c_uint64),
        ("buf", c_void_p),
        ("len", c_uint64),
        ("off", c_int64),
        ("memory", POINTER(CMemory)),
        ("access", POINTER(CAccess)),
        ("hints", POINTER(Hints)),
    ]


class CCompletion(Structure):
    _fields_ = [
        ("tag", c_uint64),
        ("result", c_int64),
        ("op", c_uint32),
        ("reserved", c_uint32),
        ("error", c_char * 104),
    ]


class Time(Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_uint32)]


class CStat(Structure):
    _fields_ = [
        ("ino", c_uint64),
        ("size", c_int64),
        ("space", c_int64),
        ("change", c_uint64),
        ("mode", c_uint32),
        ("nlink", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("rdev", c_uint32),
        ("reserved", c_uint32),
        ("atime", Time),
        ("mtime", Time),
        ("ctime", Time),
    ]


class Dirent(Structure):
    _fields_ = [("stat", CStat), ("name", c_char * 256)]


class Statfs(Structure):
    _fields_ = [
        ("bytes", c_uint64),
        ("bytes_free", c_uint64),
        ("files", c_uint64),
        ("reserved", c_uint64 * 5),
    ]


AXES, DTYPE_BYTES = 64, 128


class ArrayInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("axes", c_uint32),
        ("shape", c_int64 * AXES),
        ("element", c_uint64),
        ("offset", c_int64),
        ("bytes", c_int64),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("dtype", c_char * DTYPE_BYTES),
    ]


class Slice(Structure):
    _fields_ = [("start", c_int64), ("count", c_int64), ("step", c_int64)]


class Tiling(Structure):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("shape", c_void_p), ("ghost", c_void_p)]


def whole(kind: Any, value: Any) -> int:
    """A number that a type of C can hold. ctypes would cut others off, to some other number."""
    n: int = operator.index(value)
    if kind(n).value != n:
        raise OverflowError(f"{n} is out of range")
    return n


def int64(value: Any) -> int:
    """An offset or a length."""
    n = operator.index(value)
    return n if -(1 << 63) <= n < 1 << 63 else whole(c_int64, n)


READ, WRITE, READ_LIST, WRITE_LIST, SYNC = 1, 2, 3, 4, 5
TRUST_LOCAL = 1
LOCK_EXCLUSIVE, LOCK_TRY = 1, 2
NOREPLACE, EXCHANGE = 1, 2
WIDTH_ALL = 65535
FORTRAN = 1
WRAP, COLUMN_MAJOR = 1, 2

_handle, _text = c_void_p, c_char_p

# name: result, arguments
_FUNCTIONS: dict[str, tuple[Any, List[Any]]] = {
    "version": (c_char_p, []),
    "error": (c_char_p, []),
    "connect": (_handle, [_text, POINTER(Options)]),
    "disconnect": (c_int, [_handle]),
    "alloc": (c_void_p, [_handle, c_size_t]),
    "free": (c_int, [c_void_p]),
    "is_shared": (c_int, [c_void_p]),
    "create": (_handle, [_handle, _text, c_int, c_uint, POINTER(CLayout)]),
    "open": (_handle, [_handle, _text, c_int, c_uint]),
    "close": (c_int, [_handle]),
    "sync": (c_int, [_handle]),
    "sync_all": (c_int, [_handle]),
    "ftruncate": (c_int, [_handle, c_int64]),
    "reserve": (c_int, [_handle, c_int64, c_int64]),
    "lock": (c_int, [_handle, c_int64, c_int64, c_int]),
    "unlock": (c_int, [_handle, c_int64, c_int64]),
    "read_list": (c_ssize_t, [_handle, POINTER(CMemory), POINTER(CAccess), POINTER(Hints)]),
    "write_list": (c_ssize_t, [_handle, POINTER(CMemory), POINTER(CAccess), POINTER(Hints)]),
    "queue_create": (_handle, [_handle, c_uint]),
    "queue_fd": (c_int, [_handle]),
    "submit": (c_int, [_handle, POINTER(Request), c_uint]),
    "complete": (c_int, [_handle, POINTER(CCompletion), c_uint, c_uint, c_int]),
    "queue_destroy": (c_int, [_handle]),
    "array_open": (_handle, [_handle]),
    "array_create": (_handle, [_handle, _text, c_uint, POINTER(c_int64), c_uint]),
    "array_raw": (_handle, [_handle, c_int64, _text, c_uint, POINTER(c_int64), c_uint]),
    "array_close": (c_int, [_handle]),
    "array_sync": (c_int, [_handle]),
    "array_info": (c_int, [_handle, POINTER(ArrayInfo)]),
    "array_read": (c_ssize_t, [_handle, POINTER(Slice), c_void_p, POINTER(c_int64)]),
    "array_write": (c_ssize_t, [_handle, POINTER(Slice), c_void_p, POINTER(c_int64)]),
    "array_grid": (c_int, [_handle, POINTER(Tiling), POINTER(c_int64)]),
    "array_tile_box": (c_ssize_t, [_handle, POINTER(Tiling), POINTER(c_int64), POINTER(c_int64),
                                   POINTER(c_int64)]),
    "array_read_tile": (c_ssize_t, [_handle, POINTER(Tiling), POINTER(c_int64), c_void_p, c_size_t]),
    "array_write_tile": (c_ssize_t, [_handle, POINTER(Tiling), POINTER(c_int64), c_void_p,
                                     c_size_t]),
    "stat": (c_int, [_handle, _text, POINTER(CStat)]),
    "lstat": (c_int, [_handle, _text, POINTER(CStat)]),
    "fstat": (c_int, [_handle, POINTER(CStat)]),
    "statfs": (c_int, [_handle, _text, POINTER(Statfs)]),
    "get_layout": (c_int, [_handle, _text, POINTER(CLayout)]),
    "flayout": (c_int, [_handle, POINTER(CLayout)]),
    "set_layout": (c_int, [_handle, _text, POINTER(CLayout)]),
    "rename": (c_int, [_handle, _text, _text, c_int]),
    "truncate": (c_int, [_handle, _text, c_int64]),
    "unlink": (c_int, [_handle, _text]),
    "mkdir": (c_int, [_handle, _text, c_uint]),
    "mkdir_all": (c_int, [_handle, _text, c_uint]),
    "rmdir": (c_int, [_handle, _text]),
    "remove_all": (c_int, [_handle, _text]),
    "link": (c_int, [_handle, _text, _text]),
    "symlink": (c_int, [_handle, _text, _text]),
    "readlink": (c_ssize_t, [_handle, _text, c_char_p, c_size_t]),
    "chmod": (c_int, [_handle, _text, c_uint]),
    "chown": (c_int, [_handle, _text, c_int64, c_int64]),
    "utimes": (c_int, [_handle, _text, POINTER(Time), POINTER(Time)]),
    "opendir": (_handle, [_handle, _text]),
    "readdir": (c_int, [_handle, POINTER(Dirent)]),
    "closedir": (c_int, [_handle]),
}


class Library:
    """The functions of libsluice, without the prefix: lib.pread is sluice_pread."""

    def __init__(self, path: str) -> None:
        self.dll = dll = ctypes.CDLL(path, use_errno=True)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(dll, "sluice_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for type checkers: all are set above
        raise AttributeError(name)


_loaded: Optional[Library] = None


def load() -> Library:
    """The library: $SLUICE_LIBRARY, else the one in this package, else that of the system."""
    global _loaded
    if _loaded is None:
        beside = os.path.join(os.path.dirname(__file__), "libsluice.so.1")
        names = [os.environ.get("SLUICE_LIBRARY"), beside if os.path.exists(beside) else None]
        path = next((name for name in names if name), "libsluice.so.1")
        try:
            _loaded = Library(path)
        except OSError as err:
            raise ImportError(
                f"libsluice cannot be loaded: {err}. Install it (make install-lib), or say where it "
                "is in $SLUICE_LIBRARY"
            ) from err
    return _loaded


def fail(path: Optional[str] = None) -> NoReturn:
    """Raises what the last call of this thread has failed with."""
    number = ctypes.get_errno()
    text = load().error().decode("utf-8", "replace")
    if path is None:
        raise OSError(number, text or os.strerror(number))
    raise OSError(number, text or os.strerror(number), path)


def version() -> str:
    """The version of libsluice."""
    return str(load().version().decode())


def _settle() -> None:
    """Block the signal by which Go's runtime stops its threads.

    At its end the interpreter takes back the signal stack that faulthandler has set, and leaves the
    thread without one: a signal that was on its way to it would end the process as a crash.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})


atexit.register(_settle)
