package verbs

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// TestAvailable holds on every machine and in every build: either there is a device and Open
// works, or both say why not.
func TestAvailable(t *testing.T) {
	ok, why := Available()
	if ok == (why != "") {
		t.Fatalf("available %v, because %q", ok, why)
	}
	d, err := Open(Options{})
	if err == nil {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if !ok {
			t.Errorf("a domain although: %s", why)
		}
		return
	}
	if kind := errs.KindOf(err); ok || kind != errs.Unsupported && kind != errs.Access {
		t.Errorf("available %v, but Open: %v", ok, err)
	}
	names, err := Devices()
	t.Logf("available %v %q, devices %q %v", ok, why, names, err)
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"message too large": {MaxMessage: 1<<30 + 1},
		"negative message":  {MaxMessage: -1},
		"depth":             {QueueDepth: 1 << 20},
		"impatient":         {PeerTimeout: time.Millisecond},
		"too patient":       {PeerTimeout: time.Hour},
		"negative dial":     {DialTimeout: -1},
		"too lively":        {KeepAlive: time.Millisecond},
	} {
		if _, err := Open(o); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownDevice(t *testing.T) {
	if ok, why := Available(); !ok {
		t.Skipf("needs an RDMA device: %s", why)
	}
	_, err := Open(Options{Devices: []string{"nosuch7"}})
	if errs.KindOf(err) != errs.NotFound || !strings.Contains(err.Error(), "there are: ") {
		t.Fatal(err)
	}
}

// TestAckTimeout checks that all of a device's attempts fit into the bound, and fill half of it.
func TestAckTimeout(t *testing.T) {
	for _, bound := range []time.Duration{100 * time.Millisecond, 4 * time.Second, time.Minute} {
		all := 4096 * time.Nanosecond << ackTimeout(bound) * (ackRetries + 1)
		if all > bound || all <= bound/2 {
			t.Errorf("%v: the attempts take %v", bound, all)
		}
	}
}

func TestHelloRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := fabric.Hello{
			Version:    fabric.HelloVersion,
			Features:   rapid.Uint16().Draw(t, "features"),
			MaxMessage: rapid.Uint32().Draw(t, "message"),
			RecvDepth:  rapid.Uint32().Draw(t, "depth"),
			Identity:   rapid.Uint64().Draw(t, "identity"),
		}
		copy(h.Token[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "token"))
		gate := rapid.Uint32().Draw(t, "gate")
		b := encodeHello(&h, gate)
		padded := append(b[:], make([]byte, rapid.IntRange(0, 140).Draw(t, "padding"))...)
		got, key, err := decodeHello(padded)
		if err != nil || got != h || key != gate {
			t.Fatalf("%+v %d %v, want %+v %d", got, key, err, h, gate)
		}
	})
}

func FuzzHello(f *testing.F) {
	good := encodeHello(&fabric.Hello{Version: fabric.HelloVersion, Identity: 7}, 99)
	f.Add(good[:])
	f.Add(good[:helloBytes-1])
	f.Add([]byte{})
	refusal := encodeRefusal(errs.Version)
	f.Add(refusal[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, gate, err := decodeHello(b)
		if err == nil {
			again := encodeHello(&h, gate)
			if string(again[:]) != string(b[:helloBytes]) {
				t.Fatalf("%x became %x", b[:helloBytes], again)
			}
		}
		switch kind := errs.KindOf(decodeRefusal(b, 0)); kind {
		case errs.Perm, errs.Again, errs.Version, errs.Disconnected:
		default:
			t.Fatalf("a refusal of kind %v", kind)
		}
	})
}

func TestRefusal(t *testing.T) {
	for kind, want := range map[errs.Kind]errs.Kind{
		errs.Version: errs.Version, errs.Perm: errs.Perm, errs.Again: errs.Again,
		errs.NoMemory: errs.Disconnected, errs.OK: errs.Disconnected, 999: errs.Disconnected,
	} {
		b := encodeRefusal(kind)
		if got := errs.KindOf(decodeRefusal(b[:], 0)); got != want {
			t.Errorf("a refusal of kind %v is told as %v", kind, got)
		}
	}
	err := decodeRefusal(nil, rejectNoService)
	if errs.KindOf(err) != errs.Disconnected || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("where nobody listens: %v", err)
	}
}
