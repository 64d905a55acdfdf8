package vmtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-storage/sluice/errs"
)

// A kernel as packages bring it, of which this is the part that matters here (little-endian):
//
//	0x1f1 u8    sectors of 512 bytes before the part below, less one; 0 stands for 4
//	0x202 "HdrS"
//	0x248 u32   where the compressed kernel begins, counted from the part after those sectors
//	0x24c u32   its size; its last 4 bytes are the size that it unpacks to
//
// The compressed kernel is an ELF file. QEMU can start that as it is, and an emulated machine that
// need not unpack its own kernel is up in half the time.
const (
	bootSectors   = 0x1f1
	bootMagic     = 0x202
	bootPayload   = 0x248
	bootHeaderEnd = 0x250
	bootTrailer   = 4
	sectorBytes   = 512
)

// compressedKernel finds the payload, without its trailer; nil if this is no such image.
func compressedKernel(image []byte) []byte {
	if len(image) < bootHeaderEnd || string(image[bootMagic:bootMagic+4]) != "HdrS" {
		return nil
	}
	sectors := uint64(image[bootSectors])
	if sectors == 0 {
		sectors = 4
	}
	from := (sectors+1)*sectorBytes + uint64(binary.LittleEndian.Uint32(image[bootPayload:]))
	size := uint64(binary.LittleEndian.Uint32(image[bootPayload+4:]))
	if size <= bootTrailer || from+size > uint64(len(image)) {
		return nil
	}
	return image[from : from+size-bootTrailer]
}

// unpacker names the program that unpacks what begins like this.
func unpacker(payload []byte) string {
	for magic, name := range map[string]string{
		"\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd", "\x1f\x8b": "gzip",
	} {
		if bytes.HasPrefix(payload, []byte(magic)) {
			return name
		}
	}
	return ""
}

// unpackImage writes the kernel of a package as an ELF file. Where the machine cannot unpack it, it
// gives back the image itself, which boots too, only later.
func unpackImage(ctx context.Context, image, to string) (string, error) {
	b, err := os.ReadFile(image)
	if err != nil {
		return "", errs.Wrap("vmtest.kernel", image, err)
	}
	payload := compressedKernel(b)
	name := unpacker(payload)
	if name == "" {
		return image, nil
	}
	if _, err := lookPath(name); err != nil {
		return image, nil
	}
	elf, err := filter(ctx, bytes.NewReader(payload), name, "-dc")
	if err != nil {
		return "", err
	}
	if !bytes.HasPrefix(elf, []byte("\x7fELF")) {
		return image, nil
	}
	part := to + ".part"
	if err := os.WriteFile(part, elf, 0o644); err != nil {
		return "", errs.Wrap("vmtest.kernel", part, err)
	}
	if err := os.Rename(part, to); err != nil {
		return "", errs.Wrap("vmtest.kernel", to, err)
	}
	return to, nil
}

// The end of a module that is signed:
//
//	| signature, size bytes | 8 bytes | size u32, big-endian | signatureMark |
//
// Checking it takes an emulated machine a tenth of a second per module, and nobody's security hangs
// on it: the package was checked when it was downloaded.
const (
	signatureMark = "~Module signature appended~\n"
	signatureInfo = 12
)

// signed is how many bytes at a module's end are signature; its last bytes are enough to know.
func signed(end []byte) int64 {
	rest, ok := bytes.CutSuffix(end, []byte(signatureMark))
	if !ok || len(rest) < signatureInfo {
		return 0
	}
	size := binary.BigEndian.Uint32(rest[len(rest)-4:])
	return int64(size) + signatureInfo + int64(len(signatureMark))
}

// stripModules takes the signatures off every module below a folder.
func stripModules(root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".ko" {
			return err
		}
		return stripModule(path)
	})
	return errs.Wrap("vmtest.kernel", root, err)
}

func stripModule(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := make([]byte, min(info.Size(), signatureInfo+int64(len(signatureMark))))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return err
	}
	if n := signed(end); n > 0 && n < info.Size() {
		return f.Truncate(info.Size() - n)
	}
	return nil
}
