package volumeexport

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
)

// eventually waits for something that happens beside the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s: not within ten seconds", what)
}

func (d *double) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// TestHandOver: asked to, it syncs what was written, lets go, and refuses everything else.
func TestHandOver(t *testing.T) {
	v, d := volume(t, 1<<20)
	page := make([]byte, 4096)
	if err := v.WriteAt(t.Context(), page, 0, false); err != nil {
		t.Fatal(err)
	}
	d.change(func(vol *client.Volume) { vol.Asked = true })
	eventually(t, "the volume is handed over", v.Ended)
	eventually(t, "it is closed", func() bool {
		return slices.Equal(d.asked(), []string{"write", "sync", "close"})
	})
	_, mapped := v.Map(t.Context(), 0, 4096, 1, nil)
	for name, err := range map[string]error{
		"read":  v.ReadAt(t.Context(), page, 0),
		"write": v.WriteAt(t.Context(), page, 0, false),
		"flush": v.Flush(t.Context()),
		"trim":  v.Trim(t.Context(), 0, 4096, false),
		"map":   mapped,
	} {
		if errs.KindOf(err) != errs.Shutdown {
			t.Errorf("%s behind a handover: %v", name, err)
		}
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// TestDeposed: a gateway that was taken over from says so, whether it is told or finds out.
func TestDeposed(t *testing.T) {
	page := make([]byte, 4096)
	for name, happen := range map[string]func(d *double){
		"told": func(d *double) {
			d.change(func(vol *client.Volume) { vol.Epoch, vol.First = 2, 2 })
		},
		"refused": func(d *double) {
			d.mu.Lock()
			d.fenced = true
			d.mu.Unlock()
		},
	} {
		v, d := volume(t, 1<<20)
		happen(d)
		eventually(t, name, func() bool {
			return errs.KindOf(v.WriteAt(t.Context(), page, 0, false)) == errs.Shutdown && v.Ended()
		})
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSharing: a gateway that shares the volume goes on when others join, and when others of a
// later group have it, it does not. All that it writes and trims is durable, by one request.
func TestSharing(t *testing.T) {
	v, d := volumeWith(t, 1<<20, Options{Shared: true}, nil)
	page := make([]byte, 4096)
	size := func(n int64) { // what it hears of last, it has heard of before
		d.change(func(vol *client.Volume) { vol.Size = n })
		eventually(t, "it hears of a size", func() bool { return v.Size() == n })
	}
	d.change(func(vol *client.Volume) { vol.Epoch, vol.Shared = 5, true })
	size(2 << 20)
	if err := v.WriteAt(t.Context(), page, 0, false); err != nil || v.Ended() {
		t.Errorf("when somebody has joined: %v", err)
	}
	if err := v.Trim(t.Context(), 0, 4096, false); err != nil {
		t.Error(err)
	}
	if want := []string{"durable write", "punch"}; !slices.Equal(d.asked(), want) {
		t.Errorf("asked for %q, want %q", d.asked(), want)
	}
	d.change(func(vol *client.Volume) { vol.Epoch, vol.First = 6, 6 })
	eventually(t, "it is deposed", v.Ended)
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// TestStandby: it reads while another gateway writes, and takes over with the first change.
func TestStandby(t *testing.T) {
	v, d := volumeWith(t, 1<<20, Options{Standby: true}, func(d *double) {
		d.busy, d.vol.Writer = true, "other"
	})
	defer v.Close()
	page := make([]byte, 4096)
	if err := v.ReadAt(t.Context(), page, 0); err != nil || d.hands != 0 {
		t.Fatalf("a read: %v, asked for the volume %d times", err, d.hands)
	}
	if err := v.WriteAt(t.Context(), page, 0, false); err != nil {
		t.Fatal(err)
	}
	if err := v.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.hands != 1 || len(d.opens) != 2 || d.opens[1].ReadOnly {
		t.Errorf("asked for the volume %d times, opened it as %+v", d.hands, d.opens)
	}
	_, err := open(t.Context(), d, "v", Options{})
	if err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	d.busy = true
	d.mu.Unlock()
	_, err = open(t.Context(), d, "v", Options{})
	if errs.KindOf(err) != errs.Busy {
		t.Errorf("who does not stand by: %v", err)
	}
	r, _ := volumeWith(t, 1<<20, Options{ReadOnly: true, Standby: true}, nil)
	defer r.Close()
	if err := r.WriteAt(t.Context(), page, 0, false); errs.KindOf(err) != errs.ReadOnly {
		t.Errorf("who only reads: %v", err)
	}
}

// TestShared: every write is durable before it is answered, and every trim is by itself.
func TestShared(t *testing.T) {
	v, d := volumeWith(t, 1<<20, Options{Shared: true}, nil)
	defer v.Close()
	page := make([]byte, 4096)
	if err := errors.Join(v.WriteAt(t.Context(), page, 0, false),
		v.Trim(t.Context(), 0, 4096, false)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"durable write", "punch"}; !slices.Equal(d.asked(), want) {
		t.Errorf("asked for %q, want %q", d.asked(), want)
	}
	if !d.opens[0].Shared {
		t.Error("it was not opened to be shared")
	}
}

// TestGrows: the size follows the volume's.
func TestGrows(t *testing.T) {
	v, d := volume(t, 1<<20)
	defer v.Close()
	d.change(func(vol *client.Volume) { vol.Size = 2 << 20 })
	eventually(t, "it has grown", func() bool { return v.Size() == 2<<20 })
	d.change(func(vol *client.Volume) { vol.Size = 1 << 20 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if v.Size() != 2<<20 {
		t.Error("it has shrunk under its clients")
	}
}
