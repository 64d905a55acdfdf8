package mount

import "github.com/sluice-storage/sluice/errs"

// CacheMode says what the kernel may keep of the data of files. Names and attributes are exact in
// each, and memory can be mapped in each.
type CacheMode string

const (
	// CacheStrict: nothing. A read sees every write that has returned before, on any mount, and a
	// write has reached the servers when it returns. Pages of mapped memory are as close-to-open.
	CacheStrict CacheMode = "strict"

	// CacheCloseToOpen: pages, which are dropped when the file is opened and has changed. Writes are
	// on their way to the servers when they return, and there when the file is closed. The default.
	CacheCloseToOpen CacheMode = "close-to-open"

	// CacheWriteback: pages, and what is written stays in them until the kernel writes it back, the
	// file is synced, or closed. Who opens the file after that sees it, as in close-to-open; while it
	// is open here it is not seen that others change it.
	CacheWriteback CacheMode = "writeback"
)

func (m CacheMode) validate() error {
	switch m {
	case CacheStrict, CacheCloseToOpen, CacheWriteback:
		return nil
	}
	return errs.Newf(errs.Invalid, "mount.Options", "", "cache %q: %s, %s or %s", string(m),
		CacheStrict, CacheCloseToOpen, CacheWriteback)
}
