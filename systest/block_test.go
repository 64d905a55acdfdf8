package systest

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBlockClientsOnAVolume points clients that nobody here wrote at a volume striped over four
// servers.
func TestBlockClientsOnAVolume(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 4})
	c.sluice(t, "volume", "create", "disk", "64M")
	uri := c.serveNBD(t, "name=disk,volume=disk")

	t.Run("nbdinfo", func(t *testing.T) { nbdInfo(t, uri) })
	t.Run("nbdcopy", func(t *testing.T) { nbdCopy(t, uri) })
	t.Run("qemu-img", func(t *testing.T) { qemuImg(t, uri) })
	t.Run("qemu-io", func(t *testing.T) { qemuIO(t, uri) })
	t.Run("fio", func(t *testing.T) {
		run(t, t.TempDir(), "fio", "--name=v", "--ioengine=nbd", "--uri="+uri, "--rw=randwrite",
			"--bsrange=4k-128k", "--size=48m", "--iodepth=16", "--verify=crc32c",
			"--verify_fatal=1", "--do_verify=1")
	})
	t.Run("striping", func(t *testing.T) { volumeIsStriped(t, c) })
}

// TestBlockClientsOverTCP is the client that does the most, without shared memory.
func TestBlockClientsOverTCP(t *testing.T) {
	c := startCluster(t, clusterOptions{iods: 4, providers: "tcp"})
	c.sluice(t, "volume", "create", "disk", "64M")
	qemuIO(t, c.serveNBD(t, "name=disk,volume=disk"))
}

func nbdInfo(t *testing.T, uri string) {
	var info struct {
		Exports []struct {
			Size        int64 `json:"export-size"`
			CanFlush    bool  `json:"can_flush"`
			CanFUA      bool  `json:"can_fua"`
			CanTrim     bool  `json:"can_trim"`
			CanZero     bool  `json:"can_zero"`
			CanMulti    bool  `json:"can_multi_conn"`
			IsReadOnly  bool  `json:"is_read_only"`
			Description string
		} `json:"exports"`
	}
	must(t, json.Unmarshal([]byte(run(t, "", "nbdinfo", "--json", uri)), &info))
	if len(info.Exports) != 1 {
		t.Fatalf("%d exports", len(info.Exports))
	}
	e := info.Exports[0]
	if e.Size != 64<<20 || !e.CanFlush || !e.CanFUA || !e.CanTrim || !e.CanZero || !e.CanMulti ||
		e.IsReadOnly {
		t.Fatalf("nbdinfo: %+v", e)
	}
	if m := run(t, "", "nbdinfo", "--map", uri); !strings.Contains(m, "hole") {
		t.Fatalf("a fresh volume is not a hole: %s", m)
	}
}

func nbdCopy(t *testing.T, uri string) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	data := make([]byte, 64<<20)
	_, _ = rand.Read(data[:20<<20])         // data
	_, _ = rand.Read(data[40<<20 : 41<<20]) // a hole before it
	must(t, os.WriteFile(in, data, 0o600))
	run(t, "", "nbdcopy", "--flush", in, uri)
	run(t, "", "nbdcopy", uri, out)
	run(t, "", "cmp", in, out)
}

func qemuImg(t *testing.T, uri string) {
	dir := t.TempDir()
	src, back := filepath.Join(dir, "src.qcow2"), filepath.Join(dir, "back.raw")
	raw := filepath.Join(dir, "raw")
	data := make([]byte, 64<<20)
	_, _ = rand.Read(data[8<<20 : 24<<20])
	must(t, os.WriteFile(raw, data, 0o600))
	run(t, "", "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, src)
	run(t, "", "qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", src, uri)
	run(t, "", "qemu-img", "compare", "-f", "qcow2", "-F", "raw", src, uri)
	run(t, "", "qemu-img", "convert", "-f", "raw", "-O", "raw", uri, back)
	run(t, "", "cmp", raw, back)
	run(t, "", "qemu-img", "map", "--output=json", "-f", "raw", uri)
}

func qemuIO(t *testing.T, uri string) {
	out := run(t, "", "qemu-io", "-f", "raw", "-t", "none",
		"-c", "write -P 0x5a 0 3M", "-c", "write -f -P 0xa5 1M 64k", "-c", "flush",
		"-c", "read -P 0x5a 0 1M", "-c", "read -P 0xa5 1M 64k",
		"-c", "write -z 2M 512k", "-c", "read -P 0 2M 512k",
		"-c", "write -z -u 512k 128k", "-c", "read -P 0 512k 128k",
		"-c", "discard 0 256k", "-c", "flush",
		"-c", "aio_write -P 0x77 4M 1M", "-c", "aio_write -P 0x78 5M 1M", "-c", "aio_flush",
		"-c", "read -P 0x77 4M 1M", "-c", "read -P 0x78 5M 1M", uri)
	if strings.Contains(strings.ToLower(out), "failed") || strings.Contains(out, "error") {
		t.Fatalf("qemu-io: %s", out)
	}
}

// volumeIsStriped checks with `sluice stat` that every server holds a part.
func volumeIsStriped(t *testing.T, c *cluster) {
	var vols []struct {
		Name   string `json:"name"`
		Layout struct {
			Servers []uint32 `json:"servers"`
		} `json:"layout"`
	}
	must(t, json.Unmarshal([]byte(c.sluice(t, "volume", "ls", "--json")), &vols))
	if len(vols) != 1 || len(vols[0].Layout.Servers) != 4 {
		t.Fatalf("volume ls: %+v", vols)
	}
}
