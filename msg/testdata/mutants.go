package msg

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/wait"
)

// heldBack is what the mutant earlyReply has not delivered yet.
var heldBack struct {
	mu   sync.Mutex
	late map[*Call][]delayed
}

// delayed is a Push.
type delayed struct {
	off int64
	src []fabric.Sge
}

func (c *Call) holdBack(off int64, src []fabric.Sge) {
	heldBack.mu.Lock()
	defer heldBack.mu.Unlock()
	if heldBack.late == nil {
		heldBack.late = map[*Call][]delayed{}
	}
	heldBack.late[c] = append(heldBack.late[c], delayed{off, src})
}

// sendEarly sends the answer first, then what was held back.
func (c *Call) sendEarly() error {
	heldBack.mu.Lock()
	late := heldBack.late[c]
	delete(heldBack.late, c)
	heldBack.mu.Unlock()
	err := c.send()
	if err != nil || len(late) == 0 {
		return err
	}
	time.Sleep(time.Millisecond) // as a slow network would
	w := wait.NewCount()
	for _, d := range late {
		_ = c.transfer(context.Background(), fabric.OpWrite, &c.in, d.off, d.src, w)
	}
	c.s.duty.EnsurePolling()
	return w.Wait()
}

func reversed(list []fabric.Sge) []fabric.Sge {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
