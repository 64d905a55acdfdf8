"""The sluice parallel file system, over libsluice.

>>> import sluice
>>> fs = sluice.connect("sluice://127.0.0.1:9400")      # or a cluster's folder, or $SLUICE_URL
>>> with fs.open("/hello", "w") as f:
...     f.write("Hello, striped world")
>>> fs.listdir("/")
['hello']

`fs.open` gives the objects that the built-in `open` gives; with `buffering=0` a `File`, which also
reads and writes at offsets, by lists of pieces, and into NumPy arrays without copies. `fs.array` is
an array in a `.npy` file, of which parts are read and written by their indices. Errors are
`OSError` and its subclasses, with the library's own words. Importing `fsspec` is enough for URLs
`sluice://HOST:PORT/path` in pandas, dask and others: see `sluice.spec`.
"""

from ._access import Pieces, Vector
from ._array import Array, Tiles
from ._fs import DirEntry, File, FileSystem, Layout, Stat, connect
from ._lib import version
from ._queue import Completion, Queue

__all__ = [
    "Array",
    "Completion",
    "DirEntry",
    "File",
    "FileSystem",
    "Layout",
    "Pieces",
    "Queue",
    "Stat",
    "Tiles",
    "Vector",
    "connect",
    "version",
]
