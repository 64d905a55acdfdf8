package main

import (
	"strings"
	"testing"
)

// TestServeReloadsGateways: a change of exports does not start a gateway anew. Its metrics are
// where those of other processes are.
func TestServeReloadsGateways(t *testing.T) {
	s := newSession(t, linkSelf(t))
	s.must("sluice", "init", "--dir", "c", "--name", "lab", "--iods", "1", "--listen", "127.0.0.1:0")
	v := serveFolder(s, "c")
	appendTo(t, s.path("c/sluice.toml"), "[[nbd]]\nlisten = 'unix:nbd.sock'\n"+
		"[[nbd.export]]\nname = 'm'\nmem = '1M'\n")
	v.reload()
	if err := s.await([]string{"c/nbd.sock"}); err != nil {
		t.Fatal(err)
	}
	c, err := dialPlain(t, "unix", s.path("c/nbd.sock"), "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	before := v.pids()
	appendTo(t, s.path("c/sluice.toml"), "[[nbd.export]]\nname = 'n'\nmem = '2M'\n")
	v.reload()
	err = eventually("the new export is there", func() bool {
		_, err := dialPlain(t, "unix", s.path("c/nbd.sock"), "n", nil)
		return err == nil
	})
	if err != nil {
		t.Error(err)
	}
	if after := v.pids(); after["nbd1"] != before["nbd1"] || after["nbd1"] == 0 {
		t.Errorf("before %v, after %v", before, after)
	}
	if err := c.read(0); err != nil {
		t.Errorf("a client of the export that stayed: %v", err)
	}
	s.must("sluice", "status", "--dir", "c")
	if !strings.Contains(s.stdout, "nbd1") {
		t.Errorf("%s", s.stdout)
	}
}
