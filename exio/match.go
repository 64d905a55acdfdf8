package exio

import "slices"

// task is an operation on its way through a connection.
type task struct {
	op    *Op
	bytes int // of its pieces
	event Event

	id     uint32 // while it is in the table of writes or of reads
	sent   int    // bytes of the message that a read waits for
	moving bool   // its memory is being accessed by this side: it ends by itself
	carry  any    // what the driver keeps with it
}

// arrival is a message that has come, or is announced.
type arrival struct {
	tag    uint64
	note   uint32
	length int

	eager   bool
	payload []byte // of an eager one, in the memory that it was received in
	release func() // gives that back

	id    uint32 // of one that was announced: its sender's name of it
	carry any    // what the driver needs to fetch it
}

// matcher pairs messages with reads: each message with the first read that was posted for its tag
// or for any, each read with the first message that came. It does no I/O and holds no lock.
type matcher struct {
	reads   []*task
	waiting []*arrival
}

// take returns the message that a read is for; nil: it has not come.
func (m *matcher) take(t *task) *arrival {
	for i, a := range m.waiting {
		if t.op.Tag == a.tag || t.op.Tag == AnyTag {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			return a
		}
	}
	return nil
}

// post has a read wait for its message.
func (m *matcher) post(t *task) { m.reads = append(m.reads, t) }

// arrive returns the read that a message is for; nil: the message waits for it.
func (m *matcher) arrive(a *arrival) *task {
	for i, t := range m.reads {
		if t.op.Tag == a.tag || t.op.Tag == AnyTag {
			m.reads = slices.Delete(m.reads, i, i+1)
			return t
		}
	}
	m.waiting = append(m.waiting, a)
	return nil
}
