// Package client is the file system as a program sees it: files striped over I/O servers, reached
// directly and all at once, with one request per server whatever the number of pieces; names and
// attributes from the metadata service. User memory is described, and copied only where a provider
// does not reach it, and where a write is kept until it is synced.
//
// It keeps a session alive, renews capabilities, waits for servers that restart, and shares what is
// known of a file among all its handles. Writes that are not synced are kept by iod/remote, and
// sent again to a server that has lost them; only if that fails is there an error to report, by
// the next Sync, Commit or Close of each handle. Data that I/O servers hold is not cached: what is
// read was read from the servers.
//
// Names, attributes and small files are answered by the client itself while it holds leases on them
// (meta.Leases): what it says is what the service would say at that moment, and other clients have
// the leases recalled before they change something. Opening or stating a file sees everything that
// was acknowledged before, by whomever. A reader that hits the end of a file without a lease asks.
//
// How to use it. Open, or Dial with Options, connects to a cluster; FS.Close ends that, and syncs
// what was not. Paths are as elsewhere, from the directory that the URL names:
//
//	c, err := client.Open(ctx, "sluice://127.0.0.1:9400/")
//	defer c.Close()
//	f, err := c.Create(ctx, "/ckpt/17")
//	n, err := f.WriteAt(ctx, tensor, 0) // at the servers; a crash of theirs does not lose it
//	err = f.Sync(ctx)                   // on disk
//	err = f.Close(ctx)
//
// Every function takes a context, which ends it, also while it waits for a server that is away.
// Errors tell what failed on what and why: compare with kinds of package errs or with those of
// io/fs by errors.Is, as errors.Is(err, errs.NoSpace) or errors.Is(err, fs.ErrNotExist). All types
// are safe for concurrent use.
//
// Which way to read and write: ReadAt and WriteAt for pieces in any order, as many at a time as a
// program likes; ReadList, WriteList and Transfer for many pieces in one call; Reader and Writer,
// which read ahead and write behind, for much data in order; File.IO where only the interfaces of
// package io are asked for; package iofs where fs.FS is. Append is exact among any number of
// clients. Alloc lends memory that servers reach by themselves. WithHints has data go past the
// servers' caches or stay there, WithStrict makes reads exact while others cut the file. FS.Lock
// takes locks between clients, and with programs on mounts.
//
// Read client.go first, then file.go (life of a handle), inode.go (what handles share), transfer.go
// (life of a read or write), list.go and plan.go (many pieces), leases.go (listening, recalls,
// claims), tell.go and ending.go (what the service is told, and when), small.go and local.go (small
// files), calls.go (names and attributes), deferral.go (names that are told later), retry.go,
// kept.go (unsynced writes), lock.go (locks between clients), how.go (hints to the servers'
// caches), buffers.go and alloc.go (memory that servers reach by themselves), reader.go and
// writer.go (streams). What is known under leases is client/internal/cache.
package client

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/client/internal/behind"
	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/journal"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// DataService is what the client asks of I/O servers; Target.Server says which one is meant.
type DataService interface {
	iod.Data
	iod.Space
	iod.Reserver
}

// Options of an FS.
type Options struct {
	// Peer says which providers are opened, who polls them for answers (Progress), and how this
	// process proves to servers that it may use them. Default: all that this host has, whoever
	// waits, and the secret that the servers name. Ignored by New, as all that follows up to
	// WaitMax.
	Peer peer.Options

	// Credential is the file that sluice join has made, by which this process is known to a cluster of
	// several hosts. Default: $SLUICE_CREDENTIAL, else client.json in /etc/sluice for root, in
	// ~/.config/sluice for others; on loopback, and where there is none, the secret.
	Credential string

	// Providers, if not nil, are used in place of opening any; they stay the caller's. Default nil.
	Providers *peer.Providers

	// Buffers, in bytes, bounds the memory that servers of this host, or devices, are let into; it
	// is taken when it is first needed. At least 4 MiB, or iod.TransferMax where a provider takes
	// no other memory. Default 32 MiB.
	Buffers int

	// Register, in bytes, bounds how much of a program's own memory is registered at once with
	// providers that move registered memory only (RDMA devices), so that large reads, and large
	// writes that are durable or too large to keep, are not copied. Memory of Go's heap stays
	// registered for 10 s after its last use, and is not freed before; other memory is registered
	// for one call. At least one page; negative: none is registered, all is copied. Default 256
	// MiB.
	Register int64

	// Retain, in bytes, bounds the memory in which writes are kept until they are synced, so that a
	// server's crash does not lose them; it is taken when it is first needed. When it is full the
	// oldest ones are synced. Negative: nothing is kept, every write is made durable. Default 96
	// MiB.
	Retain int64

	// SumNear has data summed and verified also on its way to and from servers of this host, which
	// is one copy of memory. Default false: only what leaves the host is.
	SumNear bool

	// WriteBehind, in bytes, is how much of what WriteBehind took may be on its way to the servers. It
	// lies in the memory of Retain. Default 32 MiB; negative: none.
	WriteBehind int

	// WaitMax is how long an operation waits for a server that cannot be reached or does not
	// answer, whatever the reason, before it fails with errs.TimedOut and an error that names the
	// server: ETIMEDOUT for a program of this library, EIO for one on a mount and for a guest. It
	// is what Dial gives to the services; those given to New wait by themselves. peer.Forever: no
	// limit. Default 60 s.
	WaitMax time.Duration

	// Cache, in bytes, bounds the memory for what is known of names, attributes and small files
	// under leases. Default 64 MiB. Negative: nothing is kept, and the service is asked each time;
	// only what this client writes itself rests on leases then.
	Cache int64

	// TellLater, if negative, has every name told to the service before it is made or removed.
	// Otherwise names in directories that this client has made, and that nobody else looks into, are
	// made and removed here, and told a moment later: see FS.Deferred. Default 0.
	TellLater int

	// RenewEvery is how often the capabilities of handles in use are renewed. Default: two thirds
	// of the session's lease, a third of the longest life of a capability.
	RenewEvery time.Duration

	// Name is what the session is called in the metadata service's lists, before what tells this
	// client from all others. At most 128 bytes. Default: host and pid.
	Name string

	// Mount is where the files are seen on this host, for the metadata service's lists. At most 255
	// bytes. Default: they are not, but by this library.
	Mount string

	// Identity, if not empty, is the whole name of the session, in place of Name and what tells this
	// process from all others. It is for who starts a client again in place of one that has died, and
	// makes sure that it is dead: see Succeeds. At most 255 bytes. Default empty.
	Identity string

	// Succeeds are sessions of dead processes of the same Identity whose files and locks this one
	// takes over: see FS.EndSuccession. Default none.
	Succeeds []uint64

	// Journal is memory that outlives this process, in which names are written down that were made or
	// removed and not told (FS.Deferred). What a process of the same Identity has left there is told
	// before its session, one of Succeeds, is ended. JournalBytes is how large it should be: where it
	// is full the service is asked first. It is the FS's alone, until that is closed. Default: names
	// that were not told die with the process.
	Journal *journal.Journal

	// BeforeSuccession is called when the journal was told, before the sessions of Succeeds are ended
	// and others may change what they had leases on. Default: nothing is waited for.
	BeforeSuccession func(context.Context) error

	// Cred is on whose behalf the path functions work. Default: the process's user and groups.
	Cred *meta.Cred

	// Logger gets what concerns people: lost sessions, servers that are away. Default: discard.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Buffers == 0 {
		o.Buffers = 32 << 20
	}
	if o.Register == 0 {
		o.Register = 256 << 20
	}
	if o.Retain == 0 {
		o.Retain = 96 << 20
	}
	if o.WriteBehind == 0 {
		o.WriteBehind = 32 << 20
	}
	if o.WaitMax == 0 {
		o.WaitMax = 60 * time.Second
	}
	if o.Name == "" {
		o.Name = processName()
	}
	if o.Cred == nil {
		o.Cred = processCred()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return o
}

func (o *Options) validate() error {
	if o.RenewEvery < 0 {
		return errs.Newf(errs.Invalid, "client.Options", "", "a duration is negative")
	}
	if len(o.Identity) > identityMax {
		return errs.Newf(errs.Invalid, "client.Options", "", "an identity of %d bytes",
			len(o.Identity))
	}
	if len(o.Mount) > meta.MountMax {
		return errs.Newf(errs.Invalid, "client.Options", "", "Mount has %d bytes", len(o.Mount))
	}
	if len(o.Name) > nameMax {
		return errs.Newf(errs.Invalid, "client.Options", "", "a name of %d bytes", len(o.Name))
	}
	if o.Buffers < buffersMin {
		return errs.Newf(errs.Invalid, "client.Options", "", "Buffers %d is below %d", o.Buffers,
			buffersMin)
	}
	return nil
}

// buffersMin lets a few usual requests be under way.
const buffersMin = 4 << 20

// identityMax is what the service takes as the name of a session.
const identityMax = 255

func processCred() *meta.Cred {
	c := &meta.Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	groups, err := os.Getgroups()
	if err != nil {
		return c // fewer rights, never more
	}
	for _, g := range groups[:min(len(groups), meta.GroupsMax)] {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// FS is a connection to a sluice file system. Safe for concurrent use.
type FS struct {
	svc   meta.Service // that is told first what was done here
	raw   meta.Service
	data  DataService
	opts  Options
	name  string     // that its sessions have, and no other client's
	keep  keeper     // what keeps unsynced writes; nil: data does not
	rooms iod.Keeper // in whose memory they are gathered; nil likewise

	starter iod.Starter  // begins reads without waiting; nil: that is impossible
	root    meta.Ino     // where paths begin
	down    func() error // closes what Dial opened; nil for New

	buffers *buffers                         // nil: a program's own memory is as good
	peers   *peer.Network                    // that Dial opened; nil for New
	places  atomic.Pointer[remote.Directory] // likewise

	onLoss    atomic.Pointer[func(ino meta.Ino, off, n int64)]
	onVersion atomic.Pointer[func(after *meta.Attr)]
	onRecall  atomic.Pointer[func(ino meta.Ino) (forget func(context.Context))]
	onSession atomic.Pointer[func(id uint64)]
	heritage  heritage

	sess    atomic.Pointer[session]
	stop    context.CancelFunc // ends background work
	life    context.Context
	workers sync.WaitGroup

	remake   turn         // held while a lost session is replaced
	leases   leases       // of the session
	cache    *cache.Cache // what is known under them
	past     past         // files that were written and are closed
	endings  endings      // handles that nobody needs
	cutting  atomic.Int32 // files that are being created or emptied: any may be cut by that
	locks    locks
	behind   *behind.Behind
	accesses accessQueue // that the service may not know of
	flushing flushing    // small files with data that the service does not have
	deferral deferral    // names that the service does not know of

	mu     sync.Mutex
	inodes map[meta.Ino]*inode
	idle   []*inode // closed ones with unsynced writes, oldest first; some were opened again
	files  map[*File]struct{}
	closed bool // programs open nothing any more
	over   bool // nor does who tells what they have written
}

// New makes an FS on any implementation of the services. They stay the caller's.
func New(svc meta.Service, data DataService, opts Options) (*FS, error) {
	return newFS(context.Background(), svc, data, opts)
}

func newFS(ctx context.Context, svc meta.Service, data DataService, opts Options) (*FS, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	fs := &FS{
		raw:    svc,
		data:   data,
		opts:   opts,
		name:   opts.identity(),
		root:   meta.RootIno,
		remake: newTurn(),
		cache:  cache.New(cache.Options{Bytes: opts.Cache}),
		inodes: make(map[meta.Ino]*inode),
		files:  make(map[*File]struct{}),
	}
	fs.svc = telling{svc, fs}
	fs.endings, fs.flushing, fs.deferral = newEndings(), newFlushing(), newDeferral(opts.Journal)
	fs.locks.listening = newTurn()
	fs.accesses.token = make(chan struct{}, 1)
	fs.keep, _ = data.(keeper)
	fs.rooms, _ = data.(iod.Keeper)
	fs.starter, _ = data.(iod.Starter)
	fs.life, fs.stop = context.WithCancel(context.Background())
	s, err := fs.newSession(ctx)
	if err != nil {
		fs.stop()
		return nil, err
	}
	close(s.ready)
	fs.sess.Store(s)
	if err := fs.inherit(ctx, s); err != nil {
		fs.stop()
		return nil, err
	}
	if err := fs.listenOnce(ctx, s, false); err != nil { // who has not listened gets no leases
		fs.stop()
		return nil, errs.Wrap("client.Listen", "", err)
	}
	fs.behind = behind.New(opts.WriteBehind, fs.reserve)
	fs.workers.Go(fs.listen)
	fs.workers.Go(fs.flush)
	fs.workers.Go(fs.renewUsed)
	fs.workers.Go(fs.closeEndings)
	fs.workers.Go(fs.tellLater)
	fs.workers.Go(fs.tellAccesses)
	if err := fs.inheritLocks(ctx); err != nil {
		fs.stop()
		fs.workers.Wait()
		fs.behind.Close()
		return nil, err
	}
	return fs, nil
}

// background runs fn beside the callers, until the FS is closed; false if it is.
func (fs *FS) background(fn func()) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if !fs.over {
		fs.workers.Go(fn)
	}
	return !fs.over
}

// Meta is the metadata service behind the file system.
func (fs *FS) Meta() meta.Service { return fs.svc }

// Network tells what the client's connections have seen. It is zero after New: they are the
// caller's.
func (fs *FS) Network() msg.NodeStats {
	if fs.peers == nil {
		return msg.NodeStats{}
	}
	return fs.peers.Stats()
}

// Root is the directory where paths begin.
func (fs *FS) Root() meta.Ino { return fs.root }

// Caller names the current session and the given user for a call of the metadata service.
func (fs *FS) Caller(cred meta.Cred) meta.Caller {
	return meta.Caller{Session: fs.sess.Load().id, Cred: cred, Leases: fs.opts.Cache >= 0}
}

// Cred is on whose behalf the path functions work. It must not be changed.
func (fs *FS) Cred() meta.Cred { return *fs.opts.Cred }

// self is the caller behind the path functions.
func (fs *FS) self() meta.Caller { return fs.Caller(*fs.opts.Cred) }

// trusted is the caller of a handle's own upkeep: rights were checked when it was opened.
func (fs *FS) trusted() meta.Caller {
	return meta.Caller{Session: fs.sess.Load().id, Leases: true}
}

// closeMax bounds Close where WaitMax does not: a process that is told to end must do so, even if
// its user wanted its requests to wait for ever.
const closeMax = 20 * time.Second

// Close closes every open file, syncs what is kept of unsynced writes, because nobody could send it
// again from then on, ends the session and, after Dial, the connections. It waits at most WaitMax
// for servers that are away, or 20 s where that has no limit; what could not be told or was lost by
// then is an error. Operations under way are not waited for and fail.
func (fs *FS) Close() error {
	fs.mu.Lock()
	if fs.closed {
		fs.mu.Unlock()
		return nil
	}
	fs.closed = true
	open := make([]*File, 0, len(fs.files))
	for f := range fs.files {
		open = append(open, f)
	}
	fs.mu.Unlock()

	limit := fs.opts.WaitMax
	if limit < 0 {
		limit = closeMax
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var first error
	for _, f := range open {
		if again, err := f.close(ctx); first == nil && !again { // otherwise the program has closed it
			first = err
		}
	}
	if err := fs.tellRest(ctx, limit); first == nil {
		first = err
	}
	fs.tellAccessed(ctx) // as far as that is possible: nothing depends on it
	if err := fs.syncKept(ctx); err != nil && first == nil {
		first = errs.Wrap("client.Close", "", err)
	}
	if err := fs.lostUnseen(); first == nil {
		first = err
	}
	if err := fs.lostNames(); first == nil {
		first = err
	}
	fs.mu.Lock()
	fs.over = true
	fs.mu.Unlock()
	fs.stop()
	fs.workers.Wait()
	fs.behind.Close()
	if err := fs.svc.EndSession(ctx, fs.sess.Load().id); err != nil && first == nil {
		first = errs.Wrap("client.Close", "", err)
	}
	if fs.down != nil {
		if err := fs.down(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// lostUnseen is the loss of something that was written which no handle has reported.
func (fs *FS) lostUnseen() error {
	for _, n := range fs.allInodes() {
		n.mu.Lock()
		lost := n.lost
		n.mu.Unlock()
		if lost.seq > 0 && !lost.seen {
			return errs.Wrap("client.Close", "", lost.err)
		}
	}
	return nil
}
