package main

import (
	"bytes"
	"slices"
)

// How much of a device's beginning and end is looked at for what it may hold.
const (
	signatureHead = 1 << 20
	signatureTail = 128 << 10
)

// mark is a signature: bytes at a place that tell what is on a device.
type mark struct {
	what  string
	at    int // from the beginning, or, below 0, from the end
	bytes string
}

// marks are what people's data announces itself with. The order is that of trust: a boot sector's
// two bytes come last.
func marks() []mark {
	return []mark{
		{"a member of a sluice store", 0, "LOGSTORE"},
		{"a partition table (GPT)", 512, "EFI PART"},
		{"a partition table (GPT)", 4096, "EFI PART"},
		{"the second copy of a partition table (GPT)", -512, "EFI PART"},
		{"an ext2, ext3 or ext4 file system", 0x438, "\x53\xef"},
		{"an XFS file system", 0, "XFSB"},
		{"a btrfs file system", 0x10040, "_BHRfS_M"},
		{"an F2FS file system", 1024, "\x10\x20\xf5\xf2"},
		{"an encrypted volume (LUKS)", 0, "LUKS\xba\xbe"},
		{"an LVM volume", 512, "LABELONE"},
		{"swap space", 4086, "SWAPSPACE2"},
		{"a RAID member (md)", 0, "\xfc\x4e\x2b\xa9"},
		{"a RAID member (md)", 4096, "\xfc\x4e\x2b\xa9"},
		{"a RAID member (md)", -8192, "\xfc\x4e\x2b\xa9"},
		{"a RAID member (md)", -65536, "\xfc\x4e\x2b\xa9"},
		{"a ZFS pool", 0x20000, "\x0c\xb1\xba\x00"},
		{"an NTFS file system", 3, "NTFS    "},
		{"an exFAT file system", 3, "EXFAT   "},
		{"a FAT file system", 54, "FAT"},
		{"a FAT file system", 82, "FAT32"},
		{"an ISO 9660 file system", 0x8001, "CD001"},
		{"a partition table (MBR)", 510, "\x55\xaa"},
	}
}

// signature names what the first and the last bytes of a device show; "" if they are all zero at
// the beginning and show nothing at the end.
func signature(head, tail []byte) string {
	for _, m := range marks() {
		where, at := head, m.at
		if at < 0 {
			where, at = tail, len(tail)+at
		}
		if at >= 0 && at+len(m.bytes) <= len(where) &&
			bytes.Equal(where[at:at+len(m.bytes)], []byte(m.bytes)) {
			return m.what
		}
	}
	if slices.ContainsFunc(head, func(b byte) bool { return b != 0 }) {
		return "something that is not known, in its first MiB"
	}
	return ""
}
