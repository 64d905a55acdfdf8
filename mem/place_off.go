//go:build !invariants

package mem

// Place is the source line that took something, under -tags invariants; otherwise it is empty and
// costs nothing.
type Place struct{}

// Mark does nothing without the tag.
func (p *Place) Mark() {}

// String tells how to learn more.
func (p *Place) String() string { return "a place that -tags invariants would name" }
