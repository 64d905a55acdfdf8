package main

/*
#include "sluice.h"
#include "shim.h"

#cgo LDFLAGS: -lpthread
*/
import "C"

import (
	"github.com/sluice-storage/sluice/capi"
)

// version is set by the linker.
var version = "unversioned"

// lib is what the process has open: C knows nothing else of it.
var lib = capi.New(capi.Process{})

// cVersion is the version as C has it; it is never freed.
var cVersion = C.CString(capi.Version(version))

// The compiler of C and package capi must mean the same structures.
const (
	_ = uint(C.sizeof_struct_sluice_options-capi.OptionsBytes) +
		uint(capi.OptionsBytes-C.sizeof_struct_sluice_options)
	_ = uint(C.sizeof_struct_sluice_layout-capi.LayoutBytes) +
		uint(capi.LayoutBytes-C.sizeof_struct_sluice_layout)
	_ = uint(C.sizeof_struct_sluice_access-capi.AccessBytes) +
		uint(capi.AccessBytes-C.sizeof_struct_sluice_access)
	_ = uint(C.sizeof_struct_sluice_memory-capi.MemoryBytes) +
		uint(capi.MemoryBytes-C.sizeof_struct_sluice_memory)
	_ = uint(C.sizeof_struct_sluice_parent-capi.ParentBytes) +
		uint(capi.ParentBytes-C.sizeof_struct_sluice_parent)
	_ = uint(C.sizeof_struct_sluice_hints-capi.HintsBytes) +
		uint(capi.HintsBytes-C.sizeof_struct_sluice_hints)
	_ = uint(C.sizeof_struct_sluice_request-capi.RequestBytes) +
		uint(capi.RequestBytes-C.sizeof_struct_sluice_request)
	_ = uint(C.sizeof_struct_sluice_completion-capi.CompletionBytes) +
		uint(capi.CompletionBytes-C.sizeof_struct_sluice_completion)
	_ = uint(C.sizeof_struct_sluice_array_info-capi.ArrayInfoBytes) +
		uint(capi.ArrayInfoBytes-C.sizeof_struct_sluice_array_info)
	_ = uint(C.sizeof_struct_sluice_slice-capi.SliceBytes) +
		uint(capi.SliceBytes-C.sizeof_struct_sluice_slice)
	_ = uint(C.sizeof_struct_sluice_tiling-capi.TilingBytes) +
		uint(capi.TilingBytes-C.sizeof_struct_sluice_tiling)
	_ = uint(C.sizeof_struct_sluice_dirent-capi.DirentBytes) +
		uint(capi.DirentBytes-C.sizeof_struct_sluice_dirent)
	_ = uint(C.sizeof_struct_sluice_statfs-capi.StatfsBytes) +
		uint(capi.StatfsBytes-C.sizeof_struct_sluice_statfs)
	_ = uint(C.SHIM_TEXT-capi.TextMax) + uint(capi.TextMax-C.SHIM_TEXT)
)

// Words of C: a handle, an address, the place for the text of an error, a result.
type (
	handle  = C.uintptr_t
	pointer = C.uintptr_t
	textAt  = C.uintptr_t
	result  = C.int64_t
)

// do runs a call that returns a number.
func do(text textAt, call func() (int64, error)) result {
	return result(capi.Do(capi.Process{}.Trusted(uintptr(text), capi.TextMax), call))
}

// try runs a call that returns an error only.
func try(text textAt, call func() error) result {
	return do(text, func() (int64, error) { return 0, call() })
}

// open runs a call that returns a handle.
func open(text textAt, call func() (capi.Handle, error)) result {
	return do(text, func() (int64, error) {
		h, err := call()
		return int64(h), err
	})
}

//export sluiceGoVersion
func sluiceGoVersion() *C.char { return cVersion }

//export sluiceGoExit
func sluiceGoExit() { _ = lib.CloseAll() } // nobody is left to be told

//export sluiceGoConnect
func sluiceGoConnect(where, options, env pointer, text textAt) result {
	return open(text, func() (capi.Handle, error) {
		return lib.Connect(uintptr(where), uintptr(options), uintptr(env))
	})
}

//export sluiceGoDisconnect
func sluiceGoDisconnect(fs handle, text textAt) result {
	return try(text, func() error { return lib.Disconnect(capi.Handle(fs)) })
}

//export sluiceGoAlloc
func sluiceGoAlloc(fs handle, n C.uint64_t, text textAt) result {
	return do(text, func() (int64, error) {
		addr, err := lib.Alloc(capi.Handle(fs), uint64(n))
		return int64(addr), err
	})
}

//export sluiceGoFree
func sluiceGoFree(memory pointer, text textAt) result {
	return try(text, func() error { return lib.Free(uintptr(memory)) })
}

//export sluiceGoIsShared
func sluiceGoIsShared(memory pointer, text textAt) result {
	return do(text, func() (int64, error) { return lib.IsShared(uintptr(memory)) })
}

//export sluiceGoOpen
func sluiceGoOpen(fs handle, path pointer, flags C.int, mode C.uint32_t, layout pointer,
	text textAt) result {
	return open(text, func() (capi.Handle, error) {
		return lib.Open(capi.Handle(fs), uintptr(path), int(flags), uint32(mode), uintptr(layout))
	})
}

//export sluiceGoClose
func sluiceGoClose(file handle, text textAt) result {
	return try(text, func() error { return lib.Close(capi.Handle(file)) })
}

//export sluiceGoPread
func sluiceGoPread(file handle, buf pointer, n C.uint64_t, off C.int64_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Pread(capi.Handle(file), uintptr(buf), uint64(n), int64(off))
	})
}

//export sluiceGoPwrite
func sluiceGoPwrite(file handle, buf pointer, n C.uint64_t, off C.int64_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Pwrite(capi.Handle(file), uintptr(buf), uint64(n), int64(off))
	})
}

//export sluiceGoPreadv
func sluiceGoPreadv(file handle, iov pointer, count C.int, off C.int64_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Preadv(capi.Handle(file), uintptr(iov), int64(count), int64(off))
	})
}

//export sluiceGoPwritev
func sluiceGoPwritev(file handle, iov pointer, count C.int, off C.int64_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Pwritev(capi.Handle(file), uintptr(iov), int64(count), int64(off))
	})
}

//export sluiceGoAppend
func sluiceGoAppend(file handle, buf pointer, n C.uint64_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Append(capi.Handle(file), uintptr(buf), uint64(n))
	})
}

//export sluiceGoSync
func sluiceGoSync(file handle, text textAt) result {
	return try(text, func() error { return lib.Sync(capi.Handle(file)) })
}

//export sluiceGoSyncAll
func sluiceGoSyncAll(fs handle, text textAt) result {
	return try(text, func() error { return lib.SyncAll(capi.Handle(fs)) })
}

//export sluiceGoFtruncate
func sluiceGoFtruncate(file handle, size C.int64_t, text textAt) result {
	return try(text, func() error { return lib.Ftruncate(capi.Handle(file), int64(size)) })
}

//export sluiceGoReserve
func sluiceGoReserve(file handle, off, n C.int64_t, text textAt) result {
	return try(text, func() error { return lib.Reserve(capi.Handle(file), int64(off), int64(n)) })
}

//export sluiceGoLock
func sluiceGoLock(file handle, off, n C.int64_t, how C.int, text textAt) result {
	return try(text, func() error {
		return lib.Lock(capi.Handle(file), int64(off), int64(n), int(how))
	})
}

//export sluiceGoUnlock
func sluiceGoUnlock(file handle, off, n C.int64_t, text textAt) result {
	return try(text, func() error { return lib.Unlock(capi.Handle(file), int64(off), int64(n)) })
}

//export sluiceGoReadList
func sluiceGoReadList(file handle, memory, access, hints pointer, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.ReadList(capi.Handle(file), uintptr(memory), uintptr(access), uintptr(hints))
	})
}

//export sluiceGoWriteList
func sluiceGoWriteList(file handle, memory, access, hints pointer, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.WriteList(capi.Handle(file), uintptr(memory), uintptr(access), uintptr(hints))
	})
}

//export sluiceGoQueueCreate
func sluiceGoQueueCreate(fs handle, depth C.uint32_t, text textAt) result {
	return open(text, func() (capi.Handle, error) {
		return lib.CreateQueue(capi.Handle(fs), uint32(depth))
	})
}

//export sluiceGoQueueFd
func sluiceGoQueueFd(queue handle, text textAt) result {
	return do(text, func() (int64, error) { return lib.QueueFD(capi.Handle(queue)) })
}

//export sluiceGoSubmit
func sluiceGoSubmit(queue handle, requests pointer, count C.uint32_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Submit(capi.Handle(queue), uintptr(requests), uint32(count))
	})
}

//export sluiceGoComplete
func sluiceGoComplete(queue handle, to pointer, most, least C.uint32_t, timeout C.int,
	text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Complete(capi.Handle(queue), uintptr(to), uint32(most), uint32(least), int(timeout))
	})
}

//export sluiceGoQueueDestroy
func sluiceGoQueueDestroy(queue handle, text textAt) result {
	return try(text, func() error { return lib.DestroyQueue(capi.Handle(queue)) })
}

//export sluiceGoStat
func sluiceGoStat(fs handle, path, st pointer, link C.int, text textAt) result {
	return try(text, func() error {
		return lib.Stat(capi.Handle(fs), uintptr(path), uintptr(st), link != 0)
	})
}

//export sluiceGoFstat
func sluiceGoFstat(file handle, st pointer, text textAt) result {
	return try(text, func() error { return lib.Fstat(capi.Handle(file), uintptr(st)) })
}

//export sluiceGoStatfs
func sluiceGoStatfs(fs handle, path, st pointer, text textAt) result {
	return try(text, func() error { return lib.Statfs(capi.Handle(fs), uintptr(path), uintptr(st)) })
}

//export sluiceGoGetLayout
func sluiceGoGetLayout(fs handle, path, layout pointer, text textAt) result {
	return try(text, func() error {
		return lib.GetLayout(capi.Handle(fs), uintptr(path), uintptr(layout))
	})
}

//export sluiceGoFlayout
func sluiceGoFlayout(file handle, layout pointer, text textAt) result {
	return try(text, func() error { return lib.Flayout(capi.Handle(file), uintptr(layout)) })
}

//export sluiceGoSetLayout
func sluiceGoSetLayout(fs handle, path, layout pointer, text textAt) result {
	return try(text, func() error {
		return lib.SetLayout(capi.Handle(fs), uintptr(path), uintptr(layout))
	})
}

//export sluiceGoRename
func sluiceGoRename(fs handle, from, to pointer, flags C.int, text textAt) result {
	return try(text, func() error {
		return lib.Rename(capi.Handle(fs), uintptr(from), uintptr(to), int(flags))
	})
}

//export sluiceGoTruncate
func sluiceGoTruncate(fs handle, path pointer, size C.int64_t, text textAt) result {
	return try(text, func() error {
		return lib.Truncate(capi.Handle(fs), uintptr(path), int64(size))
	})
}

//export sluiceGoUnlink
func sluiceGoUnlink(fs handle, path pointer, text textAt) result {
	return try(text, func() error { return lib.Unlink(capi.Handle(fs), uintptr(path)) })
}

//export sluiceGoRmdir
func sluiceGoRmdir(fs handle, path pointer, text textAt) result {
	return try(text, func() error { return lib.Rmdir(capi.Handle(fs), uintptr(path)) })
}

//export sluiceGoMkdir
func sluiceGoMkdir(fs handle, path pointer, mode C.uint32_t, all C.int, text textAt) result {
	return try(text, func() error {
		return lib.Mkdir(capi.Handle(fs), uintptr(path), uint32(mode), all != 0)
	})
}

//export sluiceGoRemoveAll
func sluiceGoRemoveAll(fs handle, path pointer, text textAt) result {
	return try(text, func() error { return lib.RemoveAll(capi.Handle(fs), uintptr(path)) })
}

//export sluiceGoLink
func sluiceGoLink(fs handle, path, name pointer, text textAt) result {
	return try(text, func() error { return lib.Link(capi.Handle(fs), uintptr(path), uintptr(name)) })
}

//export sluiceGoSymlink
func sluiceGoSymlink(fs handle, target, path pointer, text textAt) result {
	return try(text, func() error {
		return lib.Symlink(capi.Handle(fs), uintptr(target), uintptr(path))
	})
}

//export sluiceGoReadlink
func sluiceGoReadlink(fs handle, path, buf pointer, n C.uint64_t, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.Readlink(capi.Handle(fs), uintptr(path), uintptr(buf), uint64(n))
	})
}

//export sluiceGoChmod
func sluiceGoChmod(fs handle, path pointer, mode C.uint32_t, text textAt) result {
	return try(text, func() error { return lib.Chmod(capi.Handle(fs), uintptr(path), uint32(mode)) })
}

//export sluiceGoChown
func sluiceGoChown(fs handle, path pointer, uid, gid C.int64_t, text textAt) result {
	return try(text, func() error {
		return lib.Chown(capi.Handle(fs), uintptr(path), int64(uid), int64(gid))
	})
}

//export sluiceGoUtimes
func sluiceGoUtimes(fs handle, path, atime, mtime pointer, text textAt) result {
	return try(text, func() error {
		return lib.Utimes(capi.Handle(fs), uintptr(path), uintptr(atime), uintptr(mtime))
	})
}

//export sluiceGoOpendir
func sluiceGoOpendir(fs handle, path pointer, text textAt) result {
	return open(text, func() (capi.Handle, error) {
		return lib.Opendir(capi.Handle(fs), uintptr(path))
	})
}

//export sluiceGoReaddir
func sluiceGoReaddir(dir handle, to pointer, text textAt) result {
	return do(text, func() (int64, error) { return lib.Readdir(capi.Handle(dir), uintptr(to)) })
}

//export sluiceGoClosedir
func sluiceGoClosedir(dir handle, text textAt) result {
	return try(text, func() error { return lib.Closedir(capi.Handle(dir)) })
}
