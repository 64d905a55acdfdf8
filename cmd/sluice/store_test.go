package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/logstore"
	"github.com/sluice-storage/sluice/wire"
)

// sluiceRun runs the program in this process.
func sluiceRun(args ...string) (code int, out, problems string) {
	var o, p bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &p)
	return code, o.String(), p.String()
}

// storeWith makes a store that holds one object of that content.
func storeWith(t *testing.T, content []byte) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	s, err := logstore.OpenPaths(logstore.PathOptions{Paths: []string{dir}, Make: true,
		Bytes: 64 << 20, LogBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	err = s.WriteAt(t.Context(), stripe.ObjectID{File: 7, Gen: 1}, [][]byte{content}, 0,
		wire.Stamp{}, stripe.Durable)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStoreCheckFindsAFlippedBit(t *testing.T) {
	content := pattern(300_000)
	dir := storeWith(t, content)
	if code, out, problems := sluiceRun("store", "check", dir); code != 0 ||
		!strings.Contains(out, "1 object, ") {
		t.Fatalf("exit code %d: %s%s", code, out, problems)
	}
	name := filepath.Join(dir, "blocks")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(raw, content[:64]) // the first may be in the log
	if at < 0 {
		t.Fatal("the content is not there")
	}
	raw[at+5000] ^= 1
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"check", "scrub"} {
		code, out, problems := sluiceRun("store", verb, dir)
		if code != 1 || !strings.Contains(out, "object 7.1.0 offset 4096: ") ||
			!strings.Contains(out, "1 problem\n") || !strings.Contains(problems, "restore those ranges") {
			t.Errorf("%s: exit code %d: %s%s", verb, code, out, problems)
		}
		code, out, _ = sluiceRun("store", verb, "--json", dir)
		var v verdict
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != 1 || v.Problems != 1 ||
			len(v.Found) != 1 {
			t.Errorf("%s: exit code %d, %v: %s", verb, code, err, out)
		}
	}
}

func TestStoreDumpIsBounded(t *testing.T) {
	dir := storeWith(t, pattern(1<<20))
	_, all, _ := sluiceRun("store", "dump", dir)
	if !strings.Contains(all, "object 7.1.0: size 1048576") || strings.Count(all, "\n") < 17 {
		t.Errorf("dump: %s", all)
	}
	code, out, problems := sluiceRun("store", "dump", "--max", "3", "--json", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 3 || !strings.Contains(problems, "see --max") {
		t.Fatalf("exit code %d, %d lines, %s", code, len(lines), problems)
	}
	for _, line := range lines {
		var it logstore.Item
		if err := json.Unmarshal([]byte(line), &it); err != nil || it.Kind == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestStoreThatIsOpenIsNotChecked(t *testing.T) {
	dir := storeWith(t, pattern(8192))
	s, err := logstore.OpenPaths(logstore.PathOptions{Paths: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, verb := range []string{"check", "scrub"} {
		code, _, problems := sluiceRun("store", verb, dir)
		if code != 1 || !strings.Contains(problems, "stop it first") {
			t.Errorf("%s: exit code %d: %s", verb, code, problems)
		}
	}
	if code, out, problems := sluiceRun("store", "info", dir); code != 0 ||
		!strings.Contains(out, "1 object") {
		t.Errorf("info: exit code %d: %s%s", code, out, problems)
	}
}

func TestSignatures(t *testing.T) {
	for _, m := range marks() {
		head, tail := make([]byte, signatureHead), make([]byte, signatureTail)
		if got := signature(head, tail); got != "" {
			t.Fatalf("nothing is taken for %s", got)
		}
		if m.at >= 0 {
			copy(head[m.at:], m.bytes)
		} else {
			copy(tail[len(tail)+m.at:], m.bytes)
		}
		if got := signature(head, tail); got != m.what {
			t.Errorf("%s at %d is taken for %q", m.what, m.at, got)
		}
		signature(head[:100], tail[:100]) // a small device
	}
	head := make([]byte, signatureHead)
	head[777_777] = 1
	if got := signature(head, nil); !strings.Contains(got, "not known") {
		t.Errorf("unknown content is taken for %q", got)
	}
}

// loopDevice makes a block device of a file; the test is skipped where that needs rights.
func loopDevice(t *testing.T, bytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, bytes); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device here: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dev
}

func TestStoreOnADevice(t *testing.T) {
	dev := loopDevice(t, 64<<20)
	f, err := os.OpenFile(dev, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("XFSB"), 0)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	code, _, problems := sluiceRun("store", "init", "--log-size", "1M", dev)
	if code != 1 || !strings.Contains(problems, "an XFS file system") ||
		!strings.Contains(problems, "--force "+dev) {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	steps := [][]string{{"init", "--log-size", "1M", "--force", dev, dev}, {"info", dev},
		{"check", dev}, {"scrub", dev}, {"dump", dev}}
	for _, args := range steps {
		if code, out, problems := sluiceRun(append([]string{"store"}, args...)...); code != 0 {
			t.Errorf("%v: exit code %d: %s%s", args, code, out, problems)
		}
	}
	code, _, problems = sluiceRun("store", "init", "--log-size", "1M", dev)
	if code != 1 || !strings.Contains(problems, "a member of a sluice store") {
		t.Errorf("exit code %d: %s", code, problems)
	}
}
