package meta

import (
	"context"
	"math"
)

// Quotas bounds what the trees below directories may hold.
//
// Every inode belongs to at most one tree with a quota: the one that it was made in. What it takes
// counts there from the transaction that makes it to the one that ends it: one inode each, and the
// length of regular files, holes included. Such trees do not lie within each other. A file with
// several names counts once, in the tree where it was found first, and stays there.
//
// A rename between two trees (also between a tree and what lies in none) takes a file's usage
// along, if it has no other name, and an empty directory's. A directory with contents is refused
// with errs.CrossDevice, as is a second name for a file of another tree: programs copy then.
//
// An operation that would make a new inode, or a file longer, beyond a limit is refused with
// errs.Quota and has no effect, however many do so at the same time. What was written already is
// always counted: Commit and Close are not refused, nor is anything that makes usage less.
type Quotas interface {
	// SetQuota sets the limits of the tree below a directory, or changes them. A tree that had no
	// quota is counted in the background (Quota.Counting); what changes meanwhile is counted
	// exactly, and the limits hold for what was counted so far. errs.Exists if the directory lies
	// in the tree of another quota or has one below it. For root and the owner of the root directory
	// only (errs.Perm).
	SetQuota(ctx context.Context, c Caller, dir Ino, limit Usage) (Quota, error)

	// GetQuota returns the quota of the tree that an inode belongs to; errs.NoData if none.
	GetQuota(ctx context.Context, c Caller, ino Ino) (Quota, error)

	// ListQuotas returns up to max quotas (QuotaPageMax at the most) whose ids are above after, in
	// order. An empty page is the end.
	ListQuotas(ctx context.Context, c Caller, after uint64, max int) ([]Quota, error)

	// RemoveQuota takes the quota from a directory; errs.NoData if it has none. A directory that is
	// removed takes its quota along. For those who may set one.
	RemoveQuota(ctx context.Context, c Caller, dir Ino) error

	// Grow asks for room before a file that the caller's session has open for writing becomes longer
	// than its handle allows (Handle.Bounded), and answers how long it may become: end or more, or
	// less than end if that is all that is left; errs.Quota if nothing is. The room counts as used
	// until the last writer has closed the file or it is truncated. NoBound: there is no limit.
	Grow(ctx context.Context, c Caller, ino Ino, end int64) (int64, error)
}

// QuotaPageMax is how many quotas one ListQuotas returns at most.
const QuotaPageMax = 64

// NoBound is Grow's answer where a file may become as long as it likes.
const NoBound = math.MaxInt64

// Usage is what a tree holds, or may hold at most; as a limit 0 means none.
type Usage struct {
	Bytes  int64
	Inodes int64
}

// Quota is the quota of one tree.
type Quota struct {
	ID       uint64 // never used twice
	Dir      Ino    // the top of the tree
	Path     string // where that is now; empty if it cannot be told
	Limit    Usage
	Used     Usage // with what was promised to writers of open files; see Grow
	Counting bool  // the tree is still being counted: Used is what was found so far
}
