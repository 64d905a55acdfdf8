//go:build !amd64

package crc32c

func update(crc uint32, b []byte) uint32 {
	if byTables {
		return slices(crc, b)
	}
	return instruction(crc, b)
}
