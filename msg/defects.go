package msg

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

// defects are faults that tests plant to show that they would be found.
type defects struct {
	loseCredit  bool // the server returns no credit every seventh time
	earlyReply  bool // the reply overtakes the data that was pushed before it
	keepGrants  bool // a call returns without revoking its grants
	leakOnAbort bool // a late reply does not free its slot
	keepReceive bool // the server replies without posting the receive again
	swapPieces  bool // local pieces are used from the wrong end

	invertLevels bool // lower levels go first
	reuseEarly   bool // an eager slot is used again before its request was answered
	overrun      bool // a request's window is not kept
}

// delayed is a Push that the planted defect earlyReply holds back.
type delayed struct {
	off int64
	src []fabric.Sge
}

// answerEarly is the planted defect earlyReply: the answer first, then the data.
func (c *Call) answerEarly() error {
	late := c.late
	c.late = nil
	if err := c.send(); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // as a slow network would
	w := &waiter{zero: make(chan struct{}, 1)}
	for _, d := range late {
		_ = c.transfer(context.Background(), fabric.OpWrite, &c.in, d.off, d.src, w)
	}
	c.s.needPoller()
	return w.wait()
}
