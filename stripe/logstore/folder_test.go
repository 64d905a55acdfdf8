package logstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

func TestFoldersThatAreRefused(t *testing.T) {
	thin := `{"magic": "sluice stripe store", "format": 1, "engine": "filestore",
		"store_id": "000102030405060708090a0b0c0d0e0f", "server_id": 7}`
	newer := strings.NewReplacer(`"format": 1`, `"format": 9`, "filestore", "logstore").Replace(thin)
	for _, c := range []struct {
		name, file, text string
		want             errs.Kind
		says             string
	}{
		{"a thin store", "store.json", thin, errs.Version, "thin store"},
		{"a newer format", "store.json", newer, errs.Version, "newer build"},
		{"no identity at all", "store.json", "hello", errs.Corrupt, "not the identity"},
		{"something else", "holiday.jpg", "", errs.NotEmpty, "holiday.jpg"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := OpenPaths(PathOptions{Paths: []string{dir}, Make: true, Bytes: 64 << 20,
				LogBytes: 1 << 20})
			if err == nil {
				s.Close()
			}
			if errs.KindOf(err) != c.want || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), dir) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestFolderLife(t *testing.T) {
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	p := PathOptions{Paths: dirs, Make: true, Bytes: 64 << 20, LogBytes: 1 << 20, ServerID: 3,
		Logger: quiet()}
	s, err := OpenPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("sluice"), 1<<19)
	put(t, s, faultID, 12_345, data, stripe.Grouped)
	_, err = OpenPaths(p)
	if errs.KindOf(err) != errs.Busy || !strings.Contains(err.Error(), "process") {
		t.Fatalf("a second opener gets %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wrong := p
	wrong.Paths = []string{dirs[1], dirs[0]}
	if _, err := OpenPaths(wrong); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("members in the wrong order: %v", err)
	}
	wrong.Paths = dirs[:1]
	if _, err := OpenPaths(wrong); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("a member is missing: %v", err)
	}
	wrong = p
	wrong.ServerID = 4
	if _, err := OpenPaths(wrong); errs.KindOf(err) != errs.Invalid {
		t.Fatalf("another server's store: %v", err)
	}
	look := p
	look.ReadOnly = true
	o, err := Devices(look)
	if err != nil {
		t.Fatal(err)
	}
	done, err := Check(context.Background(), o, func(p Problem) { t.Error(p) })
	if err != nil || done.Problems != 0 || done.Objects == 0 {
		t.Fatalf("check: %+v, %v", done, err)
	}
	if infos, err := Inspect(o); err != nil || len(infos) != 2 || !infos[1].Clean {
		t.Fatalf("inspect: %+v, %v", infos, err)
	}
	var text bytes.Buffer
	err = Dump(&text, o.Devices[0], o)
	if err != nil || !strings.Contains(text.String(), "object 3.1.0") {
		t.Fatalf("dump: %v\n%s", err, text.String())
	}
	closeAll(o.Devices)
	if s, err = OpenPaths(p); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := get(s, faultID, 12_345, len(data)); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("what was written differs: %v", err)
	}
}

func TestTruncatedFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := PathOptions{Paths: []string{dir}, Make: true, Bytes: 64 << 20, LogBytes: 1 << 20,
		Logger: quiet()}
	s, err := OpenPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, blocksName), 10<<20); err != nil {
		t.Fatal(err)
	}
	_, err = OpenPaths(p)
	if errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), "cut short") {
		t.Fatalf("got %v", err)
	}
}

func TestNotAStore(t *testing.T) {
	dev := device.NewMemory("blank", 16<<20)
	if _, err := Open(Options{Devices: []device.Device{dev}}); !errors.Is(err, errs.Corrupt) {
		t.Fatalf("got %v", err)
	}
}

// Blocks whose store.json is gone are somebody's data; what was never finished is not.
func TestBlocksWithoutIdentity(t *testing.T) {
	dir := t.TempDir()
	p := PathOptions{Paths: []string{dir}, Make: true, Bytes: 64 << 20, LogBytes: 1 << 20,
		Logger: quiet()}
	s, err := OpenPaths(p)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, faultID, 0, []byte("data"), stripe.Durable)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, identityName)); err != nil {
		t.Fatal(err)
	}
	_, err = OpenPaths(p)
	if errs.KindOf(err) != errs.Exists || !strings.Contains(err.Error(), "put that back") {
		t.Fatalf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, blocksName), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenPaths(p); err != nil {
		t.Fatal(err)
	}
	s.Close()
}
