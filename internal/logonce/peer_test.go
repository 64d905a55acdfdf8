package logonce

import "testing"

func TestPeer(t *testing.T) {
	for name, want := range map[string]string{
		"127.0.0.1:5000->10.0.0.7:6000": "10.0.0.7",
		"[::1]:5000->[fe80::1]:6000":    "fe80::1",
		"shm-1->shm-2":                  "shm-2",
		"alone":                         "alone",
	} {
		if got := Peer(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
