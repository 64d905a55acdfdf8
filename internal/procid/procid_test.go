package procid

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestDead(t *testing.T) {
	own := Own()
	if own.Boot == unknown || own.Space == unknown {
		t.Fatalf("%+v", own)
	}
	a, b := Name("x"), Name("x")
	if dead, known := Dead(a); a == b || dead || !known || !strings.HasPrefix(a, "x [") {
		t.Fatalf("%q and %q: %v, %v", a, b, dead, known)
	}
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	name := func(boot, space string) string {
		return ID{Boot: boot, Space: space, PID: child.Process.Pid}.name("host:1", 1)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if dead, _ := Dead(name(own.Boot, own.Space)); dead {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a zombie is not known to be dead")
		}
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		name(own.Boot, own.Space):  true,
		name("another", own.Space): false,
		name(own.Boot, "another"):  false,
		"host:1":                   false,
		"host:1 [a/b/c/d]":         false,
		"":                         false,
	} {
		if dead, known := Dead(text); dead != want || known != want {
			t.Errorf("%q: dead %v, known %v", text, dead, known)
		}
	}
}
