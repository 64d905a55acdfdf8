package store_test

import (
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/meta"
)

// TestVolumesCostTheSame: to list a page of volumes, and to open a volume once more, is the same
// work however many volumes there are and however often the client has this one open.
func TestVolumesCostTheSame(t *testing.T) {
	costs := func(n int) (page, open int64) {
		b := newBusy(t, 10)
		for i := range n {
			_, err := b.s.CreateVolume(t.Context(), b.c, fmt.Sprint("v", i), 1, meta.NewFile{})
			b.must(err)
		}
		opening := func() error {
			_, _, err := b.s.OpenVolume(t.Context(), b.c, "v1", meta.OpenWrite)
			return err
		}
		for range n {
			b.must(opening())
		}
		page = b.cost(func() error {
			_, err := b.s.ListVolumes(t.Context(), b.c, "v", 20)
			return err
		})
		return page, b.cost(opening)
	}
	pageOfFew, openFew := costs(50)
	pageOfMany, openMany := costs(2000)
	t.Logf("a page %d and %d keys, an open %d and %d", pageOfFew, pageOfMany, openFew, openMany)
	if pageOfMany > pageOfFew+3 || openMany > openFew+3 {
		t.Errorf("a page takes %d keys of 50 and %d of 2000 volumes, an open %d and %d", pageOfFew,
			pageOfMany, openFew, openMany)
	}
}
