package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestTurnsAreTakenClientByClient queues requests that nobody waits for on a goroutine, and says in
// which order they are let in.
func TestTurnsAreTakenClientByClient(t *testing.T) {
	g := New(Options{Count: 1, Turns: true, Age: time.Hour})
	var first Ticket
	if in, err := g.Queue(&first, Request{}); !in || err != nil {
		t.Fatal(in, err)
	}
	var order []string
	var tickets []*Ticket
	for _, r := range []Request{
		{Client: Client{ID: 1}}, {Client: Client{ID: 1}}, {Client: Client{ID: 1}},
		{Client: Client{ID: 2}}, {Client: Client{ID: 3}, Level: 2}, {Client: Client{ID: 2}},
	} {
		one := &Ticket{}
		one.Later = func(err error) {
			order = append(order, fmt.Sprint(r.Client.ID, err))
			tickets = append(tickets, one)
		}
		if in, err := g.Queue(one, r); in || err != nil {
			t.Fatal(in, err)
		}
	}
	g.Leave(&first)
	for range 3 {
		last := tickets[len(tickets)-1]
		g.Leave(last)
	}
	shut := errors.New("shut")
	g.Close(shut)
	want := []string{"3<nil>", "1<nil>", "2<nil>", "1<nil>", "1shut", "2shut"}
	slices.Sort(order[4:]) // those who are sent away are not let in
	for i := range order {
		order[i] = order[i][:1] + order[i][2:]
	}
	if fmt.Sprint(order) != fmt.Sprint(want) {
		t.Fatalf("%v, want %v", order, want)
	}
	if len(g.clients.all) != 0 {
		t.Fatal("clients are kept that do not wait")
	}
}

// TestATicketIsQueuedAndThenWaits: a ticket that was let in from the queue, left, and waits in a
// goroutine next is woken there, and Later is not called again: the request would run twice.
func TestATicketIsQueuedAndThenWaits(t *testing.T) {
	g := New(Options{Count: 1, Age: time.Hour})
	var first, second Ticket
	called := 0
	second.Later = func(error) { called++ }
	if in, err := g.Queue(&first, Request{}); !in || err != nil {
		t.Fatal(in, err)
	}
	if in, err := g.Queue(&second, Request{}); in || err != nil {
		t.Fatal(in, err)
	}
	g.Leave(&first)  // lets the second one in
	g.Leave(&second) // parked
	if err := g.Enter(t.Context(), &first, Request{}); err != nil {
		t.Fatal(err)
	}
	entered := make(chan error, 1)
	go func() { entered <- g.Enter(t.Context(), &second, Request{}) }()
	for g.Usage().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	g.Leave(&first)
	select {
	case err := <-entered:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody woke the goroutine that waits")
	}
	if called != 1 {
		t.Fatalf("Later was called %d times", called)
	}
}

// TestTakeKnowsRequestsAndBytes: what is taken together comes back apart.
func TestTakeKnowsRequestsAndBytes(t *testing.T) {
	g := New(Options{Count: 2, Bytes: 100, Age: time.Hour})
	take := func(bytes int64) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return g.Take(ctx, 0, 1, bytes)
	}
	if take(60) != nil || take(60) == nil || take(40) != nil || take(0) == nil {
		t.Fatal("two requests of a hundred bytes fit")
	}
	g.Give(0, 100)
	if take(0) == nil {
		t.Fatal("the bytes came back, not the requests")
	}
	g.Give(1, 0)
	if take(100) != nil || g.Free() != 0 {
		t.Fatal("one request came back")
	}
}
