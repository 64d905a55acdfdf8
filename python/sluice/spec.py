"""sluice:// for fsspec, and so for pandas, dask, pyarrow and others.

>>> import pandas
>>> pandas.read_csv("sluice://127.0.0.1:9400/data/a.csv")

URLs name a cluster and a path on it; sluice:///path is on the cluster of $SLUICE_URL. Installed from
its wheel the package registers itself; else `sluice.spec.register()` does.
"""

from __future__ import annotations

import errno
import os
import posixpath
from glob import has_magic
from typing import Any, Dict, List, Optional, Tuple

import fsspec  # type: ignore[import]
from fsspec.spec import AbstractFileSystem  # type: ignore[import]

from ._fs import File, FileSystem, Stat


def _split(url: str) -> Tuple[str, str]:
    """Cluster and path of a URL; no cluster: that of the environment."""
    if not url.startswith("sluice:"):
        return "", "/" + url.strip("/")
    rest = url[len("sluice:"):]
    host = ""
    if rest.startswith("//"):
        host, _, rest = rest[2:].partition("/")
    return (f"sluice://{host}" if host else ""), "/" + rest.strip("/")


class SluiceFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A cluster for fsspec. where: as for sluice.connect; options: those of sluice.connect."""

    protocol = "sluice"
    root_marker = "/"

    def __init__(self, where: Optional[str] = None, connect_options: Optional[Dict[str, Any]] = None,
                 **kwargs: Any) -> None:
        if self._cached:  # fsspec gives out one object for equal arguments
            return
        super().__init__(**kwargs)
        self.fs = FileSystem(where, **(connect_options or {}))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        return _split(os.fspath(path))[1]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> Dict[str, Any]:
        where, _ = _split(path)
        return {"where": where} if where else {}

    @property
    def fsid(self) -> str:
        return f"sluice-{id(self.fs)}"

    def _info(self, path: str, s: Stat) -> Dict[str, Any]:
        kind = "directory" if s.is_dir else "file" if s.is_file else "other"
        return {"name": path, "size": 0 if s.is_dir else s.size, "type": kind, "mode": s.mode,
                "ino": s.ino, "uid": s.uid, "gid": s.gid, "nlink": s.nlink, "created": s.ctime,
                "mtime": s.mtime, "change": s.change, "islink": s.is_symlink}

    def info(self, path: str, **_: Any) -> Dict[str, Any]:
        path = self._strip_protocol(path)
        return self._info(path, self.fs.stat(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        path = self._strip_protocol(path)
        if not self.fs.stat(path).is_dir:
            found = [self.info(path)]
        else:
            found = []
            for e in self.fs.scandir(path):
                name, s = path.rstrip("/") + "/" + e.name, e.stat
                if s.is_symlink:
                    try:
                        s = self.fs.stat(name)
                    except OSError:
                        pass  # it leads nowhere
                found.append(self._info(name, s))
            found.sort(key=lambda i: str(i["name"]))
        return found if detail else [i["name"] for i in found]

    def exists(self, path: str, **_: Any) -> bool:
        return self.fs.exists(self._strip_protocol(path))

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True,
              cache_options: Any = None, **kwargs: Any) -> Any:
        size = block_size if isinstance(block_size, int) and block_size > 1 else -1
        return self.fs.open(self._strip_protocol(path), mode, buffering=size,
                            layout=kwargs.get("layout"))

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None,
                 **_: Any) -> bytes:
        path = self._strip_protocol(path)
        with File(self.fs, path) as f:
            size = f.stat().size
            first = 0 if start is None else max(start + size, 0) if start < 0 else start
            last = size if end is None else end + size if end < 0 else min(end, size)
            return f.pread(max(last - first, 0), first)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        with File(self.fs, self._strip_protocol(path), "xb" if mode == "create" else "wb") as f:
            f.write(value)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.fs.makedirs(path)
        else:
            self.fs.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.fs.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.fs.rmdir(self._strip_protocol(path))

    def _rm(self, path: str) -> None:
        self.fs.remove(self._strip_protocol(path))

    rm_file = _rm

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        for one in self._named(path):
            if not self.fs.stat(one, follow_symlinks=False).is_dir:
                self.fs.remove(one)
            elif recursive:
                self.fs.rmtree(one)
            else:
                self.fs.rmdir(one)

    def _named(self, path: Any) -> List[str]:
        """What a path, a pattern or a list of them names."""
        found: List[str] = []
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if has_magic(one) and not self.fs.exists(one):
                found += self.expand_path(one)
            else:
                found.append(one)
        return found

    def mv_file(self, path1: str, path2: str, **_: Any) -> None:
        self.fs.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: Optional[int] = None,
           **kwargs: Any) -> None:
        """A file or directory, under a new name or, where that is a directory, into it. Several of
        them, by a list or a pattern, go into a directory."""
        one = isinstance(path1, str) and self._named(path1) == [self._strip_protocol(path1)]
        into = str(path2).endswith("/") or self.isdir(path2)
        to = self._strip_protocol(path2)
        if not one and not into:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path2)
        for name in self._named(path1):
            self.mv_file(name, posixpath.join(to, posixpath.basename(name)) if into else to)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.fs.stat(path1).is_dir:
            self.fs.makedirs(path2, exist_ok=True)
            return
        buffer = self.fs.alloc(4 << 20)
        with File(self.fs, path1) as source, File(self.fs, path2, "wb") as to:
            while n := source.readinto(buffer):
                to.write(buffer[:n])

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if truncate or not self.fs.exists(path):
            File(self.fs, path, "wb").close()
        else:
            import time

            now = time.time()
            self.fs.utime(path, (now, now))

    def created(self, path: str) -> Any:
        return self._time(path, "created")

    def modified(self, path: str) -> Any:
        return self._time(path, "mtime")

    def _time(self, path: str, which: str) -> Any:
        from datetime import datetime, timezone

        return datetime.fromtimestamp(self.info(path)[which], tz=timezone.utc)

    def ukey(self, path: str) -> str:
        i = self.info(path)
        return f"{i['ino']}-{i['change']}"


def register() -> None:
    """Makes sluice:// known to fsspec, where the package was not installed from its wheel."""
    fsspec.register_implementation("sluice", SluiceFileSystem, clobber=True)
