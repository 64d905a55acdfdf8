package progress

import "testing"

// TestDutyCallsTheStandby says when the standby is called: when others depend on who leaves, when
// handlers are slow, and when nobody has polled for two visits.
func TestDutyCallsTheStandby(t *testing.T) {
	called, alive := 0, true
	var d Duty
	d.Open(NewVisitor[*Duty](), func() bool { called++; return alive })
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
	d.Need()
	expect("somebody polls", 0)
	d.Leave(false)
	expect("nobody depends on it", 0)
	if !d.Look() || called != 0 {
		t.Fatal("it was used since the last visit")
	}
	if !d.Look() {
		t.Fatal("the standby has not polled yet: it is visited again")
	}
	expect("nobody polled between two visits", 1)
	d.Take()
	if d.Look() {
		t.Fatal("it is visited although somebody polls")
	}
	d.Leave(true)
	expect("others depend on it", 1)

	d.Take()
	d.Serve()
	expect("a quick handler", 0)
	d.Need()
	expect("a handler that waits", 1)
	for range slowStays {
		d.Take()
		d.Serve()
	}
	expect("handlers after a slow one", slowStays)
	d.Take()
	d.Serve()
	expect("quick again", 0)

	alive = false
	d.Look()
	if d.Look() {
		t.Fatal("it is visited although there is nothing to poll any more")
	}
	expect("the last call", 1)
}
