package shm

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/keytable"
)

// TestFault makes shared memory fault, as if its owner had taken pages away that the host cannot
// replace: the connection ends, the process does not.
func TestFault(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, h *hostile){
		"the ring that is emptied": func(t *testing.T, h *hostile) {
			protect(t, h.ep.view.in)
			h.put(&header{kind: frameSend}, nil)
			h.ep.progress()
		},
		"the ring that is filled": func(t *testing.T, h *hostile) {
			protect(t, h.ep.view.out)
			_ = h.ep.Post([]fabric.WR{{Op: fabric.OpSend}})
		},
		"the words": func(t *testing.T, h *hostile) {
			protect(t, h.ep.view.mem[:4096])
			_ = h.ep.Post([]fabric.WR{{Op: fabric.OpSend}})
		},
		"the words, asleep": func(t *testing.T, h *hostile) {
			protect(t, h.ep.view.mem[:4096])
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var dst [1]fabric.Completion
			_, err := h.end.cq.Wait(ctx, dst[:])
			fatal(t, err)
			if dst[0].ErrKind() != errs.Disconnected {
				t.Fatalf("completion %+v", dst[0])
			}
		},
		"an arena": func(t *testing.T, h *hostile) {
			fd := forge(t, 64<<10, true, seals)
			defer unix.Close(fd)
			h.note(t, note{kind: noteExport, id: 1, size: 64 << 10}, fd)
			for h.ep.mapped() == 0 {
				time.Sleep(time.Millisecond)
			}
			protect(t, h.ep.arenas[1].mem)
			h.view.grants[0].open(5<<keytable.PlaceBits, 0, 64<<10, 1, fabric.RemoteWrite)
			_ = h.ep.Post([]fabric.WR{{
				Op: fabric.OpWrite, Local: []fabric.Sge{{Buf: h.end.mem[:1000]}},
				Remote: fabric.Remote{Key: 5 << keytable.PlaceBits, Addr: provider.Addr(1), Len: 1000},
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, Options{})
			fault(t, h)
			if kind := h.died(t); kind != errs.Disconnected {
				t.Fatalf("it ended with %v", kind)
			}
		})
	}
}

// protect takes all rights on mapped pages away.
func protect(t *testing.T, mem []byte) {
	t.Helper()
	fatal(t, unix.Mprotect(mem, unix.PROT_NONE))
}

// TestGuardLetsBugsThrough shows that only faults in memory are forgiven.
func TestGuardLetsBugsThrough(t *testing.T) {
	h := newHostile(t, Options{})
	defer func() {
		if recover() == nil {
			t.Fatal("a bug was swallowed")
		}
	}()
	func() {
		defer h.ep.guard().off()
		var list []int
		_ = list[len(h.end.mem)]
	}()
}
