package vmtest

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// imageOf packs a payload as kernels are packed.
func imageOf(payload []byte) []byte {
	const sectors = 2
	b := make([]byte, (sectors+1)*sectorBytes+100)
	b[bootSectors] = sectors
	copy(b[bootMagic:], "HdrS")
	binary.LittleEndian.PutUint32(b[bootPayload:], 100)
	binary.LittleEndian.PutUint32(b[bootPayload+4:], uint32(len(payload)+bootTrailer))
	b = append(b, payload...)
	return append(b, "sizeand what follows"...)
}

func TestUnpackImage(t *testing.T) {
	pack := func(text string) []byte {
		cmd := exec.Command("gzip", "-c")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, row := range map[string]struct {
		image []byte
		want  string // what the unpacked file holds; "" is none
	}{
		"a kernel":            {imageOf(pack("\x7fELF and more")), "\x7fELF and more"},
		"not an ELF file":     {imageOf(pack("something else")), ""},
		"an unknown packer":   {imageOf([]byte("unheard of")), ""},
		"not a kernel at all": {[]byte("text"), ""},
	} {
		dir := t.TempDir()
		image, to := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "vmlinux")
		if err := os.WriteFile(image, row.image, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := unpackImage(t.Context(), image, to)
		text, _ := os.ReadFile(to)
		if string(text) != row.want || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if boots := got == to; boots != (row.want != "") {
			t.Errorf("%s: boots %s", name, got)
		}
	}
	broken := filepath.Join(t.TempDir(), "vmlinuz")
	if err := os.WriteFile(broken, imageOf([]byte("\x1f\x8bnonsense")), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := unpackImage(t.Context(), broken, broken+"x"); err == nil {
		t.Error("unpacked what is broken")
	}
}

func FuzzCompressedKernel(f *testing.F) {
	f.Add(imageOf([]byte("payload")))
	f.Add(imageOf(nil)[:bootHeaderEnd])
	f.Add([]byte("HdrS"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p := compressedKernel(b); p != nil && (len(p) == 0 || !bytes.Contains(b, p)) {
			t.Fatalf("%d bytes of %d", len(p), len(b))
		}
	})
}

func TestStripModules(t *testing.T) {
	mark := []byte(signatureMark)
	tail := append([]byte("signature--------\x00\x00\x00\x09"), mark...)
	for name, row := range map[string]struct{ before, after string }{
		"a.ko": {"code" + string(tail), "code"},
		"b.ko": {"no signature", "no signature"},
		"c.ko": {"", ""},
		"d.ko": {string(mark), string(mark)},
		"e.ko": {"\xff\xff\xff\xff" + string(mark), "\xff\xff\xff\xff" + string(mark)},
		"f.ko": {"12345678\xff\xff\xff\xff" + string(mark), "12345678\xff\xff\xff\xff" + string(mark)},
		"text": {"code" + string(tail), "code" + string(tail)},
	} {
		dir := filepath.Join(t.TempDir(), "below")
		path := filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(row.before), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := stripModules(filepath.Dir(dir)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != row.after {
			t.Errorf("%s: %q became %q, want %q", name, row.before, got, row.after)
		}
	}
}

func TestKVMNeedsTheProcessor(t *testing.T) {
	dir := t.TempDir()
	for name, row := range map[string]struct {
		cpuinfo string
		device  bool
		want    bool
	}{
		"intel":          {"model name\t: x\nflags\t\t: fpu vmx sse\n", true, true},
		"amd":            {"flags\t\t: fpu svm\n", true, true},
		"no device":      {"flags\t\t: fpu vmx sse\n", false, false},
		"no help for it": {"vmx\t: x\nflags\t\t: fpu vmxx sse\n", true, false},
		"nothing known":  {"", true, false},
	} {
		cpuinfo, device := filepath.Join(dir, "cpuinfo"), filepath.Join(dir, "kvm")
		if err := os.WriteFile(cpuinfo, []byte(row.cpuinfo), 0o644); err != nil {
			t.Fatal(err)
		}
		if row.device {
			if err := os.WriteFile(device, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := hasKVM(device, cpuinfo); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
		_ = os.Remove(device)
	}
	if hasKVM(dir, filepath.Join(dir, "nothing")) {
		t.Error("KVM without knowing the processor")
	}
	t.Setenv("SLUICE_VMTEST_ACCEL", "tcg")
	if accel, cpu := acceleration(); !strings.HasPrefix(accel, "tcg") || cpu != emulatedCPU {
		t.Errorf("%s, %s", accel, cpu)
	}
}
