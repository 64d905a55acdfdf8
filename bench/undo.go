package bench

import (
	"errors"
	"slices"
)

// Undo is what is to be undone when a contender, or a whole bench, is through.
type Undo struct{ list []func() error }

// Later notes something that was opened.
func (u *Undo) Later(fn func() error) { u.list = append(u.list, fn) }

// Close undoes everything, the last first.
func (u *Undo) Close() error {
	var failed []error
	for _, fn := range slices.Backward(u.list) {
		failed = append(failed, fn())
	}
	u.list = nil
	return errors.Join(failed...)
}
