package fabric

import (
	"errors"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

// listed is a Connector that only lists devices.
type listed struct {
	Connector
	all []Device
	err error
}

func (l listed) Devices() ([]Device, error) { return l.all, l.err }

func TestUpDevice(t *testing.T) {
	down := Device{Name: "down", Addrs: []string{"10.0.0.1"}}
	bare := Device{Name: "bare", Up: true}
	good := Device{Name: "good", Up: true, Addrs: []string{"10.0.0.2"}}
	got, err := UpDevice(listed{all: []Device{down, bare, good}})
	if err != nil || got.Name != "good" {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := UpDevice(listed{all: []Device{down, bare}}); errs.KindOf(err) != errs.Unsupported {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := UpDevice(listed{err: broken}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}
