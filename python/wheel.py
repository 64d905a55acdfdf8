"""Builds the wheel of the package, with libsluice in it, by nothing but Python's own library.

    python3 wheel.py VERSION LIBRARY FOLDER

A wheel (PEP 427) is a zip of the package and of a folder that says what it is; RECORD lists its files
with their sums.
"""

import base64
import hashlib
import os
import re
import sys
import sysconfig
import zipfile

ENTRY_POINTS = "[fsspec.specs]\nsluice = sluice.spec:SluiceFileSystem\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # so that equal contents make equal files


def pep440(version: str) -> str:
    """A version of git describe as Python has it: v0.4-12-gabc becomes 0.4+12.gabc."""
    base, _, rest = version.lstrip("v").partition("-")
    if not re.fullmatch(r"\d+(\.\d+)*", base):
        base, rest = "0", version
    local = re.sub(r"[^a-z0-9]+", ".", rest.lower()).strip(".")
    return base + ("+" + local if local else "")


def build(version: str, library: str, folder: str) -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    version = pep440(version)
    info = f"sluice-{version}.dist-info"
    with open(os.path.join(here, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    files = {}
    for name in sorted(os.listdir(os.path.join(here, "sluice"))):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(here, "sluice", name), "rb") as f:
                files["sluice/" + name] = f.read()
    with open(library, "rb") as f:
        files["sluice/libsluice.so.1"] = f.read()
    files[info + "/METADATA"] = (
        f"Metadata-Version: 2.1\nName: sluice\nVersion: {version}\n"
        "Summary: files of a sluice cluster\nRequires-Python: >=3.9\n"
        "Provides-Extra: fsspec\nRequires-Dist: fsspec; extra == 'fsspec'\n"
        "Provides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
        "Description-Content-Type: text/markdown\n\n" + readme).encode()
    files[info + "/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: sluice\nRoot-Is-Purelib: false\nTag: {tag}\n").encode()
    files[info + "/entry_points.txt"] = ENTRY_POINTS.encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[info + "/RECORD"] = (record + info + "/RECORD,,\n").encode()
    path = os.path.join(folder, f"sluice-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            z.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(build(*sys.argv[1:]))
