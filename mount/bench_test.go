package mount

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/memfuse"
	"golang.org/x/sys/unix"
)

// BenchmarkAgainstCeiling writes and reads a file through memfuse, the ceiling, and through
// sluice with four I/O servers in memory, in turns and all in this process. It reports the best
// round of each in MB/s and their ratio. Reads are cold: the kernel's pages are dropped before.
func BenchmarkAgainstCeiling(b *testing.B) {
	ceiling := b.TempDir()
	unmount, err := memfuse.Mount(ceiling)
	if err != nil {
		b.Skipf("no FUSE here: %v", err)
	}
	defer unmount()
	ours := newMount(b)
	for _, test := range []struct {
		name string
		run  func(b *testing.B, path string)
	}{
		{"write-1m", streamWrite}, {"read-1m", streamRead}, {"write-4k", smallWrites},
	} {
		b.Run(test.name, func(b *testing.B) {
			var best [2]float64
			for b.Loop() {
				for i, dir := range []string{ceiling, ours} {
					began := time.Now()
					test.run(b, filepath.Join(dir, "stream"))
					rate := benchBytes / 1e6 / time.Since(began).Seconds()
					best[i] = max(best[i], rate)
				}
			}
			b.ReportMetric(best[0], "ceiling-MB/s")
			b.ReportMetric(best[1], "sluice-MB/s")
			b.ReportMetric(best[1]/best[0], "ratio")
		})
	}
}

const benchBytes = 64 << 20

func streamWrite(b *testing.B, path string) {
	buf := pattern(1<<20, 1)
	f, err := os.Create(path)
	must(b, err)
	for range benchBytes >> 20 {
		_, err := f.Write(buf)
		must(b, err)
	}
	must(b, f.Close())
}

func streamRead(b *testing.B, path string) {
	buf := make([]byte, 1<<20)
	f, err := os.Open(path)
	must(b, err)
	must(b, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	for range benchBytes >> 20 {
		_, err := f.Read(buf)
		must(b, err)
	}
	must(b, f.Close())
}

func smallWrites(b *testing.B, path string) {
	f, err := os.Create(path)
	must(b, err)
	buf := pattern(4096, 1)
	for range benchBytes >> 12 {
		_, err := f.Write(buf)
		must(b, err)
	}
	must(b, f.Close())
}
