package fs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	cases, err := MountCases(name, filepath.Join(dir, "other"))
	if err != nil || len(cases) != 2 {
		t.Fatalf("%+v, %v", cases, err)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != fileBytes {
		t.Fatalf("%v, %v", info, err)
	}
	for _, c := range cases {
		for _, by := range c.Contenders {
			r, err := by.Measure(t.Context(), 20*time.Millisecond)
			if err != nil || r.In(c.Metric) <= 0 {
				t.Errorf("%s by %s: %+v, %v", c.Name, by.Provider, r, err)
			}
		}
	}
	absent := byFile("host", name+"x", os.O_RDONLY, (*os.File).ReadAt)
	if _, err := absent.Measure(t.Context(), 1); err == nil {
		t.Error("an absent file was read")
	}
}
