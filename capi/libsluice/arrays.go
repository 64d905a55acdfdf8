package main

/*
#include "sluice.h"
*/
import "C"

import "github.com/sluice-storage/sluice/capi"

// The functions of arrays.

//export sluiceGoArrayOpen
func sluiceGoArrayOpen(file handle, text textAt) result {
	return open(text, func() (capi.Handle, error) { return lib.OpenArray(capi.Handle(file)) })
}

//export sluiceGoArrayCreate
func sluiceGoArrayCreate(file handle, dtype pointer, axes C.uint32_t, shape pointer,
	flags C.uint32_t, text textAt) result {
	return open(text, func() (capi.Handle, error) {
		return lib.CreateArray(capi.Handle(file), uintptr(dtype), uint32(axes), uintptr(shape),
			uint32(flags))
	})
}

//export sluiceGoArrayRaw
func sluiceGoArrayRaw(file handle, off C.int64_t, dtype pointer, axes C.uint32_t, shape pointer,
	flags C.uint32_t, text textAt) result {
	return open(text, func() (capi.Handle, error) {
		return lib.RawArray(capi.Handle(file), int64(off), uintptr(dtype), uint32(axes),
			uintptr(shape), uint32(flags))
	})
}

//export sluiceGoArrayClose
func sluiceGoArrayClose(array handle, text textAt) result {
	return try(text, func() error { return lib.CloseArray(capi.Handle(array)) })
}

//export sluiceGoArraySync
func sluiceGoArraySync(array handle, text textAt) result {
	return try(text, func() error { return lib.SyncArray(capi.Handle(array)) })
}

//export sluiceGoArrayInfo
func sluiceGoArrayInfo(array handle, info pointer, text textAt) result {
	return try(text, func() error { return lib.ArrayInfo(capi.Handle(array), uintptr(info)) })
}

//export sluiceGoArrayRead
func sluiceGoArrayRead(array handle, slices, memory, strides pointer, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.ReadArray(capi.Handle(array), uintptr(slices), uintptr(memory), uintptr(strides))
	})
}

//export sluiceGoArrayWrite
func sluiceGoArrayWrite(array handle, slices, memory, strides pointer, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.WriteArray(capi.Handle(array), uintptr(slices), uintptr(memory), uintptr(strides))
	})
}

//export sluiceGoArrayGrid
func sluiceGoArrayGrid(array handle, tiling, grid pointer, text textAt) result {
	return try(text, func() error {
		return lib.ArrayGrid(capi.Handle(array), uintptr(tiling), uintptr(grid))
	})
}

//export sluiceGoArrayTileBox
func sluiceGoArrayTileBox(array handle, tiling, at, low, high pointer, text textAt) result {
	return do(text, func() (int64, error) {
		return lib.ArrayTileBox(capi.Handle(array), uintptr(tiling), uintptr(at), uintptr(low),
			uintptr(high))
	})
}

//export sluiceGoArrayReadTile
func sluiceGoArrayReadTile(array handle, tiling, at, memory pointer, n C.uint64_t,
	text textAt) result {
	return do(text, func() (int64, error) {
		return lib.ReadTile(capi.Handle(array), uintptr(tiling), uintptr(at), uintptr(memory),
			uint64(n))
	})
}

//export sluiceGoArrayWriteTile
func sluiceGoArrayWriteTile(array handle, tiling, at, memory pointer, n C.uint64_t,
	text textAt) result {
	return do(text, func() (int64, error) {
		return lib.WriteTile(capi.Handle(array), uintptr(tiling), uintptr(at), uintptr(memory),
			uint64(n))
	})
}
