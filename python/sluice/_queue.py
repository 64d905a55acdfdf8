"""Asynchronous requests: many under way from one thread, with a descriptor to wait on."""

from __future__ import annotations

import ctypes
import itertools
import os
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence

from . import _lib
from ._access import Access, Held, Transfer

if TYPE_CHECKING:
    from ._fs import File, FileSystem


_TIMEOUT_MAX = 2_000_000  # seconds; in milliseconds they are an int


class Completion(NamedTuple):
    """What came of a request: bytes, or why it failed."""

    tag: int
    result: int
    error: Optional[OSError]


class Queue:
    """At most depth requests that are under way, or whose completion was not taken.

    fileno() is readable, for select and asyncio, while there are completions. Buffers belong to
    the queue until their completion was taken. A queue that nobody refers to any more is closed.
    """

    def __init__(self, fs: "FileSystem", depth: int = 64) -> None:
        self._handle: Any = None
        self._lib = _lib.load()
        self._fs = fs
        self._handle = self._lib.queue_create(fs._handle, _lib.whole(ctypes.c_uint, depth))
        if not self._handle:
            _lib.fail()
        self._keep: Dict[int, Any] = {}
        self._tags = itertools.count(1)

    def fileno(self) -> int:
        n = self._lib.queue_fd(self._handle)
        if n < 0:
            _lib.fail()
        return int(n)

    def read(self, file: "File", buffer: Any, off: int) -> Optional[int]:
        """Reads into a contiguous buffer; the tag of its completion, None: the queue is full."""
        return self._one(_lib.READ, file, Held(buffer, True), off)

    def write(self, file: "File", buffer: Any, off: int) -> Optional[int]:
        """Writes a contiguous buffer."""
        return self._one(_lib.WRITE, file, Held(buffer, False), off)

    def read_list(self, file: "File", buffer: Any, access: Access, memory: Optional[Access] = None,
                  parents: Sequence[Any] = ()) -> Optional[int]:
        """File.read_list beside the caller."""
        return self._list(_lib.READ_LIST, file, Transfer(buffer, access, memory, parents, True))

    def write_list(self, file: "File", buffer: Any, access: Access, memory: Optional[Access] = None,
                   parents: Sequence[Any] = ()) -> Optional[int]:
        """File.write_list beside the caller."""
        return self._list(_lib.WRITE_LIST, file, Transfer(buffer, access, memory, parents, False))

    def sync(self, file: "File") -> Optional[int]:
        """File.sync beside the caller."""
        return self._submit(_lib.Request(op=_lib.SYNC, file=file._handle), None)

    def _one(self, op: int, file: "File", held: Held, off: int) -> Optional[int]:
        if held.vector().dims:
            raise BufferError("a buffer that is not contiguous: use lists")
        return self._submit(_lib.Request(op=op, file=file._handle, buf=held.address,
                                         len=held.nbytes, off=_lib.int64(off)), held)

    def _list(self, op: int, file: "File", t: Transfer) -> Optional[int]:
        r = _lib.Request(op=op, file=file._handle, memory=ctypes.pointer(t.memory),
                         access=ctypes.pointer(t.access))
        if t.hints is not None:
            r.hints = ctypes.pointer(t.hints)
        return self._submit(r, t)

    def _submit(self, r: _lib.Request, keep: Any) -> Optional[int]:
        tag = next(self._tags)
        r.size, r.tag = ctypes.sizeof(r), tag
        self._keep[tag] = keep
        n = self._lib.submit(self._handle, ctypes.byref(r), 1)
        if n < 1:
            del self._keep[tag]
        if n < 0:
            _lib.fail()
        return tag if n == 1 else None

    def complete(self, least: int = 1, timeout: Optional[float] = None,
                 most: int = 64) -> List[Completion]:
        """Takes completions: waits for at least `least`, but not longer than timeout (seconds)."""
        room = (_lib.CCompletion * most)()
        ms = -1 if timeout is None else int(min(max(timeout, 0), _TIMEOUT_MAX) * 1000)
        n = self._lib.complete(self._handle, room, most, least, ms)
        if n < 0:
            _lib.fail()
        return [self._taken(room[i]) for i in range(n)]

    def _taken(self, c: _lib.CCompletion) -> Completion:
        keep = self._keep.pop(c.tag, None)
        if hasattr(keep, "release"):
            keep.release()
        if c.result >= 0:
            return Completion(c.tag, c.result, None)
        text = c.error.decode("utf-8", "replace")
        return Completion(c.tag, c.result, OSError(-c.result, text or os.strerror(-c.result)))

    def close(self) -> None:
        """Waits for what is under way, and ends the queue."""
        if self._handle:
            handle, self._handle = self._handle, None
            if self._lib.queue_destroy(handle) != 0 and not self._fs.closed:
                _lib.fail()
            self._keep.clear()

    def __del__(self) -> None:  # the memory of what is under way goes with it
        if getattr(self, "_handle", None):
            self._lib.queue_destroy(self._handle)

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
