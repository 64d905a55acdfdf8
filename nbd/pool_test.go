package nbd

import "testing"

func TestPoolClasses(t *testing.T) {
	p := &pool{idleMax: 1 << 20}
	for _, n := range []int{1, 4095, 4096, 4097, 65536, 65537, 1 << 20, 64 << 20} {
		buf := p.get(n)
		most := 2 * int64(max(n, 4096))
		if len(buf) != n || int64(cap(buf)) != classBytes(n) || classBytes(n) >= most {
			t.Errorf("get(%d): %d of %d, class %d", n, len(buf), cap(buf), classBytes(n))
		}
		p.put(buf)
		if p.idle > p.idleMax {
			t.Errorf("%d bytes idle", p.idle)
		}
	}
	buf := p.get(5000)
	buf[0] = 42
	p.put(buf)
	if again := p.get(8000); again[0] != 42 {
		t.Error("a buffer of the same class was not reused")
	}
}
