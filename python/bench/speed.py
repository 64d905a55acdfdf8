"""bench/speed.c of libsluice in Python: speed.py PATH BYTES COUNT malloc|alloc."""

import statistics
import sys
from time import perf_counter_ns

import sluice

path, size, count, memory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with sluice.connect() as fs:
    f = fs.file(path)
    end = f.stat().size
    buffer = fs.alloc(size) if memory == "alloc" else bytearray(size)
    took, at, begin = [], 0, perf_counter_ns()
    for i in range(-count // 10, count):
        t = perf_counter_ns()
        if i == 0:
            begin = t
        n = f.pread_into(buffer, at)
        spent = perf_counter_ns() - t
        assert n == size
        at += size
        if at + size > end:
            at = 0
        if i >= 0:
            took.append(spent)
    print(int(statistics.median(took)), (perf_counter_ns() - begin) // count)
