//go:build !amd64

package crc32c

import "hash/crc32"

func update(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
