package exio

import "context"

// Wait begins an operation by begin, which is a handle's Read or Write, and waits for its end. When
// ctx ends first it returns ctx's error, and the operation goes on: its memory is the handle's
// until Done, or until the handle is closed.
func Wait(ctx context.Context, begin func(*Op) error, op Op) (Event, error) {
	done := make(chan Event, 1)
	op.Done = func(ev Event) { done <- ev }
	if err := begin(&op); err != nil {
		return Event{}, err
	}
	select {
	case ev := <-done:
		return ev, ev.Err
	case <-ctx.Done():
		return Event{}, ctx.Err()
	}
}
