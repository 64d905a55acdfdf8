package progress

import "testing"

// TestDutyCallsTheStandby says when the standby is called: when others depend on the goroutine that
// leaves, when handlers are slow, and when nobody has polled for two checks.
func TestDutyCallsTheStandby(t *testing.T) {
	called, alive := 0, true
	var d Duty
	d.Open(NewWatchdog[*Duty](), func() bool { called++; return alive },
		func() bool { return true })
	expect := func(what string, want int) {
		t.Helper()
		if called != want {
			t.Fatalf("%s: the standby was called %d times, want %d", what, called, want)
		}
		called = 0
	}
	if d.Take() || !d.Taken() {
		t.Fatal("the duty is had by one at a time")
	}
	d.EnsurePolling()
	expect("somebody polls", 0)
	d.Leave(false)
	expect("nobody depends on it", 0)
	if !d.Check() || called != 0 {
		t.Fatal("it was used since the last check")
	}
	if !d.Check() {
		t.Fatal("the standby has not polled yet: it is checked again")
	}
	expect("nobody polled between two checks", 1)
	d.Take()
	if d.Check() {
		t.Fatal("it is checked although somebody polls")
	}
	d.Leave(true)
	expect("others depend on it", 1)

	d.Take()
	d.Serve()
	expect("a quick handler", 0)
	d.EnsurePolling()
	expect("a handler that waits", 1)
	for range slowRequests {
		d.Take()
		d.Serve()
	}
	expect("handlers after a slow one", slowRequests)
	d.Take()
	d.Serve()
	expect("quick again", 0)

	alive = false
	d.Check()
	if d.Check() {
		t.Fatal("it is checked although there is nothing to poll any more")
	}
	expect("the last call", 1)
}
