package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAnonymous maps size bytes. Advised pages start at a multiple of a huge page, or the kernel
// could not use one at either end. More is mapped for that, and the excess unmapped at once,
// untouched.
func mapAnonymous(size int, pages Pages) (mem []byte, free func() error, err error) {
	flags, room := unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, size
	switch pages {
	case PagesHuge:
		flags |= unix.MAP_HUGETLB | unix.MAP_HUGE_2MB
	case PagesAdvised:
		room += hugeBytes
	}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(room), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, nil, err
	}
	start := base
	if room > size {
		head := -uintptr(base) & (hugeBytes - 1)
		start = unsafe.Add(base, head)
		if err := trim(base, head, start, uintptr(size), uintptr(room)); err != nil {
			_ = unix.MunmapPtr(base, uintptr(room))
			return nil, nil, err
		}
	}
	free = func() error { return unix.MunmapPtr(start, uintptr(size)) }
	return unsafe.Slice((*byte)(start), size), free, nil
}

// trim unmaps what lies before and behind the size bytes at start.
func trim(base unsafe.Pointer, head uintptr, start unsafe.Pointer, size, room uintptr) error {
	if head > 0 {
		if err := unix.MunmapPtr(base, head); err != nil {
			return err
		}
	}
	if tail := room - head - size; tail > 0 {
		return unix.MunmapPtr(unsafe.Add(start, size), tail)
	}
	return nil
}

// addrOf is where a mapping starts, for comparison only.
func addrOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

func pageAligned(mem []byte) bool { return addrOf(mem)%uintptr(unix.Getpagesize()) == 0 }
