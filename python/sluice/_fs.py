"""Connections and files."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import stat as _stat
import threading
import weakref
from ctypes import byref
from typing import (
    IO,
    Any,
    Callable,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from . import _lib
from ._access import Access, Transfer
from ._array import Array
from ._call import Calls

Path = Union[str, "os.PathLike[str]"]


class Stat(NamedTuple):
    """Attributes of a file. Times are seconds since 1970."""

    ino: int
    size: int
    space: int
    change: int
    mode: int
    nlink: int
    uid: int
    gid: int
    atime: float
    mtime: float
    ctime: float

    @property
    def is_dir(self) -> bool:
        return _stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return _stat.S_ISREG(self.mode)

    @property
    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self.mode)


class DirEntry(NamedTuple):
    """A name in a directory, with attributes."""

    name: str
    stat: Stat


class Layout(NamedTuple):
    """How a file is striped: unit bytes in a row on each of width servers. 0 and "": any."""

    unit: int = 0
    width: int = 0
    pool: str = ""


def _seconds(t: _lib.Time) -> float:
    return float(t.sec + t.nsec / 1e9)


def _to_stat(s: _lib.CStat) -> Stat:
    return Stat(s.ino, s.size, s.space, s.change, s.mode, s.nlink, s.uid, s.gid,
                _seconds(s.atime), _seconds(s.mtime), _seconds(s.ctime))


def _to_c(layout: Layout) -> _lib.CLayout:
    return _lib.CLayout(ctypes.sizeof(_lib.CLayout), _lib.whole(ctypes.c_uint32, layout.width),
                        _lib.whole(ctypes.c_uint64, layout.unit), layout.pool.encode())


def _encode(path: Path) -> bytes:
    text = os.fsencode(path)
    if b"\0" in text:
        raise ValueError("a path with a zero in it")
    return text


def _contiguous(buffer: Any, instead: str) -> None:
    """Says what to do with a buffer that was refused because it has gaps."""
    if not memoryview(buffer).c_contiguous:
        raise BufferError(f"a buffer that is not contiguous: use {instead}")


class File(io.RawIOBase):
    """An open file without a buffer. Its position is Python's; calls with an offset leave it alone."""

    def __init__(self, fs: "FileSystem", path: Path, mode: str = "rb", *,
                 layout: Optional[Layout] = None, permissions: int = 0o666) -> None:
        self._handle: int = 0
        super().__init__()
        self._lib: _lib.Library = fs._lib
        self.name: str = os.fspath(path)
        self._fs, self.mode = fs, mode
        self._calls = fs._calls
        flags = _flags(mode)
        self._reads = flags & os.O_ACCMODE != os.O_WRONLY
        self._writes = flags & os.O_ACCMODE != os.O_RDONLY
        self._appends = bool(flags & os.O_APPEND)
        self._at = 0
        if layout is None:
            handle = self._lib.open(fs._handle, _encode(path), flags, permissions)
        else:
            c = _to_c(layout)
            if not flags & os.O_CREAT:
                raise ValueError("a layout for a file that is not made")
            handle = self._lib.create(fs._handle, _encode(path), flags, permissions, byref(c))
        if not handle:
            _lib.fail(self.name)
        self._handle = handle

    # ---- at offsets

    def pread_into(self, buffer: Any, off: int) -> int:
        """Reads into a writable contiguous buffer (bytearray, memoryview, NumPy array), without a
        copy; returns how many bytes: less than its length only at the end of the file."""
        try:
            n: int = self._calls.pread(self._handle, buffer, off)
        except (BufferError, ValueError) as err:
            _contiguous(buffer, "read_list")
            raise BufferError(str(err)) from None
        if n < 0:
            self._failed(-n)
        return n

    def pread(self, n: int, off: int) -> bytes:
        """Reads n bytes at an offset; fewer only at the end of the file."""
        into = bytearray(n)
        got = self.pread_into(into, off)
        return bytes(into) if got == n else bytes(into[:got])

    def pwrite(self, data: Any, off: int) -> int:
        """Writes a contiguous buffer at an offset, without a copy where servers reach its memory."""
        return self._send(self._calls.pwrite, data, off)

    def append(self, data: Any) -> int:
        """Writes at the end, exactly, among any number of clients, and tells where that was."""
        return self._send(self._calls.append, data, 0)

    def _send(self, call: Any, data: Any, off: int) -> int:
        try:
            n: int = call(self._handle, data, off)
        except (BufferError, ValueError) as err:
            _contiguous(data, "write_list")
            raise BufferError(str(err)) from None
        if n < 0:
            self._failed(-n)
        return n

    # ---- lists

    def read_list(self, buffer: Any, access: Access, memory: Optional[Access] = None,
                  parents: Sequence[Any] = ()) -> int:
        """Reads the bytes of the file that access means into buffer: into all of it, in the order
        of its indices, also where it is an array with strides, or into the bytes that memory means,
        as offsets in a contiguous buffer. The lengths must be equal. Each server is asked once.

        What lies behind the end of the file becomes zeroes; the result is how many bytes come
        before that. parents are the allocations that buffer is a part of, or pairs of one and of how
        many bytes of it may be registered (0: all): a hint for devices."""
        t = Transfer(buffer, access, memory, parents, True)
        return self._list(self._lib.read_list, t)

    def write_list(self, buffer: Any, access: Access, memory: Optional[Access] = None,
                   parents: Sequence[Any] = ()) -> int:
        """read_list in the other direction."""
        t = Transfer(buffer, access, memory, parents, False)
        return self._list(self._lib.write_list, t)

    def _list(self, call: Any, t: Transfer) -> int:
        hints = None if t.hints is None else byref(t.hints)
        n = call(self._handle, byref(t.memory), byref(t.access), hints)
        if n < 0:
            self._failed()
        return int(n)

    # ---- io.RawIOBase

    def readinto(self, buffer: Any) -> int:
        self._readable()
        n = self.pread_into(buffer, self._at)
        self._at += n
        return n

    def readall(self) -> bytes:
        self._readable()
        left = max(self.stat().size - self._at, 0)
        data = self.pread(left, self._at)
        self._at += len(data)
        return data

    def write(self, data: Any) -> int:
        if not self._writes:
            raise io.UnsupportedOperation("not open for writing")
        if self._appends:
            n = memoryview(data).nbytes
            self._at = self.append(data) + n
            return n
        n = self.pwrite(data, self._at)
        self._at += n
        return n

    def seek(self, off: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            off += self._at
        elif whence == io.SEEK_END:
            off += self.stat().size
        elif whence != io.SEEK_SET:
            raise ValueError(f"whence {whence}")
        if off < 0:
            raise OSError(errno.EINVAL, "a negative position")
        self._at = off
        return off

    def tell(self) -> int:
        self._open()
        return self._at

    def truncate(self, size: Optional[int] = None) -> int:
        size = self._at if size is None else size
        if self._lib.ftruncate(self._handle, _lib.int64(size)) != 0:
            self._failed()
        return size

    def readable(self) -> bool:
        self._open()
        return self._reads

    def writable(self) -> bool:
        self._open()
        return self._writes

    def seekable(self) -> bool:
        self._open()
        return True

    def close(self) -> None:
        """Ends the handle, and tells the file's length to everybody. It makes nothing durable."""
        if self.closed:
            return
        super().close()
        handle, self._handle = self._handle, 0
        if handle and self._lib.close(handle) != 0:
            if self._fs.closed and ctypes.get_errno() == errno.EBADF:
                return  # it went with its connection
            _lib.fail(self.name)

    def _open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _readable(self) -> None:
        self._open()
        if not self._reads:
            raise io.UnsupportedOperation("not open for reading")

    def _failed(self, number: int = 0) -> NoReturn:
        number = number or ctypes.get_errno()
        self._open()
        ctypes.set_errno(number)
        _lib.fail(self.name)

    # ---- more

    def sync(self) -> None:
        """Returns when all that was written before is on disks."""
        if self._lib.sync(self._handle) != 0:
            self._failed()

    def stat(self) -> Stat:
        s = _lib.CStat()
        if self._lib.fstat(self._handle, byref(s)) != 0:
            self._failed()
        return _to_stat(s)

    def layout(self) -> Layout:
        c = _lib.CLayout(size=ctypes.sizeof(_lib.CLayout))
        if self._lib.flayout(self._handle, byref(c)) != 0:
            self._failed()
        return Layout(c.unit, c.width, c.pool.decode())

    def reserve(self, off: int, n: int) -> None:
        """Gives a range its space: no write to it fails for want of space."""
        if self._lib.reserve(self._handle, _lib.int64(off), _lib.int64(n)) != 0:
            self._failed()

    def lock(self, off: int = 0, n: int = 0, *, exclusive: bool = True, wait: bool = True) -> bool:
        """Takes a lock between clients, on all of the file or a range; False: somebody has it."""
        how = (_lib.LOCK_EXCLUSIVE if exclusive else 0) | (0 if wait else _lib.LOCK_TRY)
        if self._lib.lock(self._handle, _lib.int64(off), _lib.int64(n), how) == 0:
            return True
        if not wait and ctypes.get_errno() == errno.EAGAIN:
            return False
        self._failed()

    def unlock(self, off: int = 0, n: int = 0) -> None:
        if self._lib.unlock(self._handle, _lib.int64(off), _lib.int64(n)) != 0:
            self._failed()


class Buffered(io.BufferedIOBase):
    """A file behind one of io's buffers. NumPy and others take io's own classes for files of the
    system, and ask them for descriptors; this one has none."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self._inner = inner
        for name in ("read", "read1", "readinto", "readinto1", "readline", "readlines", "write",
                     "seek", "tell", "truncate", "flush", "readable", "writable", "seekable", "peek"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    @property
    def raw(self) -> File:  # type: ignore[override]
        return self._inner.raw  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        return self.raw.name

    @property
    def mode(self) -> str:
        return self.raw.mode

    @property
    def closed(self) -> bool:
        return bool(self._inner.closed)

    def close(self) -> None:
        self._inner.close()

    def __iter__(self) -> Any:
        return iter(self._inner)

    def __next__(self) -> bytes:
        return next(self._inner)  # type: ignore[no-any-return]


def _flags(mode: str) -> int:
    """The flags of open(2) for a mode of Python's open, without t and b."""
    kinds = {"r": os.O_RDONLY, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
             "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND, "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL}
    main = [c for c in mode if c in kinds]
    if len(main) != 1 or set(mode) - set("rwaxbt+") or len(set(mode)) != len(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    flags = kinds[main[0]]
    if "+" in mode:
        flags = flags & ~os.O_ACCMODE | os.O_RDWR
    return flags


def _array_mode(mode: str) -> str:
    if mode not in ("r", "r+"):
        raise ValueError(f"mode {mode!r}: an array is opened with 'r' or 'r+'")
    return mode[0] + "b" + mode[1:]


def _described(shape: Any, dtype: Any, order: str) -> Tuple[Any, Any, int]:
    """An array's dtype, the counts of its axes, and its flags."""
    import numpy

    if order not in ("C", "F"):
        raise ValueError(f"order {order!r}: it is 'C' or 'F'")
    counts = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    c = (ctypes.c_int64 * len(counts))(*(_lib.int64(n) for n in counts))
    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError("elements that refer to objects of Python are not in files")
    return kind, c, _lib.FORTRAN if order == "F" else 0


def _descr(kind: Any) -> bytes:
    """What the header of a .npy file says of a dtype."""
    import numpy

    headers: Any = numpy.lib.format
    return str(headers.dtype_to_descr(kind)).encode()


def _made(file: File, make: Callable[[], Array]) -> Array:
    """What make makes of the file, which is closed if it cannot be made."""
    try:
        return make()
    except BaseException:
        file.close()
        raise


class FileSystem:
    """A connection to a cluster. Safe for use by many threads."""

    def __init__(self, where: Optional[str] = None, *, credential: Optional[str] = None,
                 secret: Optional[str] = None, providers: Optional[str] = None,
                 progress: Optional[str] = None, name: Optional[str] = None, buffers: int = 0,
                 retain: int = 0, pinned: int = 0, wait: float = 0, trust_local: bool = False
                 ) -> None:
        self._handle: Any = None
        self._lib = _lib.load()
        self._calls = Calls(self._lib)
        self._mu = threading.Lock()
        self._lent = 0
        self._closing = False

        def text(s: Optional[str]) -> Optional[bytes]:
            return None if s is None else os.fsencode(s)

        o = _lib.Options(ctypes.sizeof(_lib.Options), _lib.TRUST_LOCAL if trust_local else 0,
                         text(credential), text(secret), text(providers), text(progress), text(name),
                         *(_lib.whole(ctypes.c_uint64, n) for n in (buffers, retain, pinned)),
                         _lib.whole(ctypes.c_uint32, int(wait * 1000)), 0)
        self._handle = self._lib.connect(text(where), byref(o))
        if not self._handle:
            _lib.fail(where)

    # ---- life

    @property
    def closed(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Makes all that was written durable and ends the connection, with all its files. Memory of
        empty() that is still in use keeps the connection until it is not."""
        with self._mu:
            if self._closing:
                return
            self._closing = True
            lent = self._lent
        if lent:
            if self._lib.sync_all(self._handle) != 0:
                _lib.fail()
        elif self._lib.disconnect(self._handle) != 0:
            _lib.fail()

    def _free(self, address: int) -> None:
        """Gives memory back that nobody refers to any more."""
        self._lib.free(address)
        with self._mu:
            self._lent -= 1
            last = self._closing and self._lent == 0
        if last:
            self._lib.disconnect(self._handle)

    def __enter__(self) -> "FileSystem":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- memory

    def alloc(self, n: int) -> memoryview:
        """Memory that servers of this host, and devices, reach by themselves: n bytes, of any content.
        It is given back when nothing refers to it any more."""
        n = _lib.whole(ctypes.c_ssize_t, n)
        if n <= 0:
            raise ValueError(f"memory of {n} bytes")
        with self._mu:
            if self._closing:
                raise ValueError("the connection is closed")
            self._lent += 1
        address = self._lib.alloc(self._handle, n)
        if not address:
            with self._mu:
                self._lent -= 1
            _lib.fail()
        kind: Any = type("_Block", (ctypes.Array,), {"_type_": ctypes.c_ubyte, "_length_": n})
        block = kind.from_address(address)
        weakref.finalize(block, self._free, address).atexit = False
        return memoryview(block).cast("B")

    def empty(self, shape: Any, dtype: Any = float) -> Any:
        """A NumPy array in memory of alloc, of any content."""
        import numpy

        kind = numpy.dtype(dtype)
        count = int(numpy.prod(shape, dtype=numpy.int64))
        if count == 0:
            return numpy.empty(shape, kind)
        return numpy.frombuffer(self.alloc(count * kind.itemsize), kind, count).reshape(shape)

    # ---- files

    def open(self, path: Path, mode: str = "r", buffering: int = -1, encoding: Optional[str] = None,
             errors: Optional[str] = None, newline: Optional[str] = None, *,
             layout: Optional[Layout] = None, permissions: int = 0o666) -> IO[Any]:
        """The built-in open for files of the cluster. buffering=0, in binary mode: a File."""
        binary = "b" in mode
        if binary and (encoding or errors or newline):
            raise ValueError("binary mode takes no encoding, errors or newline")
        if not binary and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        raw = File(self, path, mode, layout=layout, permissions=permissions)
        if buffering == 0:
            return raw  # type: ignore[return-value]
        size = buffering if buffering > 1 else 1 << 20
        buffer: Any
        if "+" in mode:
            buffer = io.BufferedRandom(raw, size)
        elif raw.writable():
            buffer = io.BufferedWriter(raw, size)
        else:
            buffer = io.BufferedReader(raw, size)
        if binary:
            return Buffered(buffer)  # type: ignore[return-value]
        return io.TextIOWrapper(buffer, encoding or "utf-8", errors, newline, buffering == 1)

    def file(self, path: Path, mode: str = "rb", **options: Any) -> File:
        """open without a buffer."""
        return File(self, path, mode, **options)

    # ---- arrays

    def array(self, path: Path, mode: str = "r") -> Array:
        """An array in a .npy file: "r", or "r+" to write parts, too. See Array."""
        file = File(self, path, _array_mode(mode))
        return _made(file, lambda: Array(file, self._lib.array_open(file._handle)))

    def create_array(self, path: Path, shape: Any, dtype: Any = float, order: str = "C", *,
                     layout: Optional[Layout] = None) -> Array:
        """A new .npy file of zeroes. What the file held is lost, unless the array cannot be."""
        kind, counts, flags = _described(shape, dtype, order)
        new = layout is not None or not self.exists(path)
        file = File(self, path, "wb+" if new else "rb+", layout=layout)
        try:
            return _made(file, lambda: Array(file, self._lib.array_create(
                file._handle, _descr(kind), len(counts), counts, flags), kind))
        except OSError:
            if new and not self.stat(path).size:
                self.remove(path)
            raise

    def raw_array(self, path: Path, shape: Any, dtype: Any = float, offset: int = 0,
                  order: str = "C", mode: str = "r") -> Array:
        """An array without a header, which begins at an offset of a file that is there."""
        kind, counts, flags = _described(shape, dtype, order)
        file = File(self, path, _array_mode(mode))
        return _made(file, lambda: Array(file, self._lib.array_raw(
            file._handle, _lib.int64(offset), _descr(kind), len(counts), counts, flags), kind))

    def read_bytes(self, path: Path) -> bytes:
        with self.file(path) as f:
            return f.readall()

    def write_bytes(self, path: Path, data: Any) -> int:
        with self.file(path, "wb") as f:
            return f.write(data)

    # ---- names

    def _call(self, name: str, path: Path, *rest: Any) -> None:
        if getattr(self._lib, name)(self._handle, _encode(path), *rest) != 0:
            _lib.fail(os.fspath(path))

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> Stat:
        s = _lib.CStat()
        self._call("stat" if follow_symlinks else "lstat", path, byref(s))
        return _to_stat(s)

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def scandir(self, path: Path = "/") -> Iterator[DirEntry]:
        """The entries of a directory with attributes, in no particular order."""
        handle = self._lib.opendir(self._handle, _encode(path))
        if not handle:
            _lib.fail(os.fspath(path))
        try:
            e = _lib.Dirent()
            while True:
                n = self._lib.readdir(handle, byref(e))
                if n < 0:
                    _lib.fail(os.fspath(path))
                if n == 0:
                    return
                yield DirEntry(os.fsdecode(e.name), _to_stat(e.stat))
        finally:
            self._lib.closedir(handle)

    def listdir(self, path: Path = "/") -> List[str]:
        return [e.name for e in self.scandir(path)]

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        self._call("mkdir", path, mode)

    def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        if not exist_ok and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        self._call("mkdir_all", path, mode)

    def remove(self, path: Path) -> None:
        self._call("unlink", path)

    def rmdir(self, path: Path) -> None:
        self._call("rmdir", path)

    def rmtree(self, path: Path) -> None:
        """Removes what a path names and all below it. A path that names nothing is fine."""
        self._call("remove_all", path)

    def rename(self, old: Path, new: Path, *, replace: bool = True, exchange: bool = False) -> None:
        flags = _lib.EXCHANGE if exchange else 0 if replace else _lib.NOREPLACE
        self._call("rename", old, _encode(new), flags)

    def truncate(self, path: Path, size: int) -> None:
        self._call("truncate", path, _lib.int64(size))

    def link(self, path: Path, name: Path) -> None:
        self._call("link", path, _encode(name))

    def symlink(self, target: Path, path: Path) -> None:
        if self._lib.symlink(self._handle, _encode(target), _encode(path)) != 0:
            _lib.fail(os.fspath(path))

    def readlink(self, path: Path) -> str:
        to = ctypes.create_string_buffer(4097)
        if self._lib.readlink(self._handle, _encode(path), to, len(to)) < 0:
            _lib.fail(os.fspath(path))
        return os.fsdecode(to.value)

    def chmod(self, path: Path, mode: int) -> None:
        self._call("chmod", path, mode)

    def chown(self, path: Path, uid: int = -1, gid: int = -1) -> None:
        self._call("chown", path, _lib.int64(uid), _lib.int64(gid))

    def utime(self, path: Path, times: tuple[float, float]) -> None:
        """Sets the times of access and of change, in seconds."""
        a, m = (_lib.Time(int(t // 1), int(t % 1 * 1e9)) for t in times)
        self._call("utimes", path, byref(a), byref(m))

    def layout(self, path: Path) -> Layout:
        c = _lib.CLayout(size=ctypes.sizeof(_lib.CLayout))
        self._call("get_layout", path, byref(c))
        return Layout(c.unit, c.width, c.pool.decode())

    def set_layout(self, path: Path, layout: Layout) -> None:
        """For what is made in a directory from now on, or for a file without data."""
        c = _to_c(layout)
        self._call("set_layout", path, byref(c))

    def free_bytes(self, path: Path = "/") -> int:
        s = _lib.Statfs()
        self._call("statfs", path, byref(s))
        return int(s.bytes_free)

    def sync(self) -> None:
        """Returns when all that was written before, of all files, is on disks."""
        if self._lib.sync_all(self._handle) != 0:
            _lib.fail()


def connect(where: Optional[str] = None, **options: Any) -> FileSystem:
    """Connects to a cluster: sluice://HOST:PORT[/dir], a cluster's folder, or, with None,
    $SLUICE_URL, else what the credential says, else sluice://127.0.0.1:9400.

    Options are those of struct sluice_options: credential, secret (files), providers, progress,
    name, buffers, retain, pinned (bytes), wait (seconds), trust_local."""
    return FileSystem(where, **options)
