package nbd

import (
	"testing"
	"time"
)

// TestStates: of requests that an export takes its time for, one of sampleEach is watched, and most
// of its time is the export's.
func TestStates(t *testing.T) {
	const n, pause = 4 * sampleEach, time.Millisecond
	f := newFake(1 << 20)
	f.setHook(func(string, int64) error { time.Sleep(pause); return nil })
	s := serve(t, Config{}, f.entry("x"))
	c := ready(t, s, "x", true)
	for range n {
		c.want(nbdOK, cmdRead, 0, 0, 4096, nil)
		c.want(nbdOK, cmdWrite, 0, 0, 4096, make([]byte, 4096))
		c.want(nbdOK, cmdFlush, 0, 0, 0, nil)
	}
	c.nc.Close()
	settled(t, func() bool { return s.Stats().Conns == 0 }) // the last reply counts when it has left
	st := s.Stats()
	if got := st.ReadTimes.Sampled + st.WriteTimes.Sampled; got != 2*n/sampleEach {
		t.Errorf("%d requests were watched of %d", got, 2*n)
	}
	sum := st.ReadTimes.Run + st.WriteTimes.Run
	if least := 2 * n / sampleEach * pause; sum < least || sum > time.Minute {
		t.Errorf("the export took %v, at least %v", sum, least)
	}
	for _, w := range []Times{st.ReadTimes, st.WriteTimes} {
		if w.Wait < 0 || w.Send < 0 || w.Wait+w.Send > time.Minute {
			t.Errorf("%+v", w)
		}
	}
	if e := s.Exports()[0]; e.ReadTimes != st.ReadTimes || e.WriteTimes != st.WriteTimes {
		t.Errorf("%+v of the export, %+v of the server", e.Counts, st.Counts)
	}
}

// settled waits for something to be so.
func settled(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not become so within a minute")
		}
	}
}
