package meta

import (
	"bytes"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/wire"
)

// Plain fields: a number has its own width, a flag one byte, a string a four-byte length and its
// bytes.

func u8[T any, V ~uint8](at func(*T) *V) field[T] {
	return field[T]{
		enc: func(e *wire.Enc, v *T) { e.U8(uint8(*at(v))) },
		dec: func(d *wire.Dec, v *T) { *at(v) = V(d.U8()) },
	}
}

func u64[T any, V ~uint64](at func(*T) *V) field[T] {
	return field[T]{
		enc: func(e *wire.Enc, v *T) { e.U64(uint64(*at(v))) },
		dec: func(d *wire.Dec, v *T) { *at(v) = V(d.U64()) },
	}
}

func i64[T any](at func(*T) *int64) field[T] {
	return field[T]{
		enc: func(e *wire.Enc, v *T) { e.I64(*at(v)) },
		dec: func(d *wire.Dec, v *T) { *at(v) = d.I64() },
	}
}

func flag[T any](at func(*T) *bool) field[T] {
	return field[T]{
		enc: func(e *wire.Enc, v *T) { e.Bool(*at(v)) },
		dec: func(d *wire.Dec, v *T) { *at(v) = d.Bool() },
	}
}

func text[T any](at func(*T) *string, limit int) field[T] {
	return field[T]{
		enc: func(e *wire.Enc, v *T) { e.String(*at(v)) },
		dec: func(d *wire.Dec, v *T) { *at(v) = d.String(limit) },
	}
}

// one is a field with a form of its own.
func one[T, V any](at func(*T) *V, enc func(*wire.Enc, *V), dec func(*wire.Dec, *V)) field[T] {
	return field[T]{
		enc: func(e *wire.Enc, v *T) { enc(e, at(v)) },
		dec: func(d *wire.Dec, v *T) { dec(d, at(v)) },
	}
}

// many is |count u32 |count x item |. An item takes at least itemBytes.
func many[T, V any](at func(*T) *[]V, limit, itemBytes int, enc func(*wire.Enc, *V),
	dec func(*wire.Dec, *V)) field[T] {

	return field[T]{
		enc: func(e *wire.Enc, v *T) {
			all := *at(v)
			e.U32(uint32(len(all)))
			for i := range all {
				enc(e, &all[i])
			}
		},
		dec: func(d *wire.Dec, v *T) {
			n := d.Count(limit, itemBytes)
			if n == 0 {
				return
			}
			all := make([]V, n)
			for i := range all {
				dec(d, &all[i])
			}
			*at(v) = all
		},
	}
}

// The smallest items, for many: what the fixed parts of the encoders add up to.
const (
	layoutBytes = 16
	attrBytes   = 8 + 1 + 5*4 + 8 + 4*TimeBytes + 4 + 2*8 + 2 + 8 + 3 + 8 + 1 + layoutBytes
	entryBytes  = 4 + 8 + 1 + 8 + 1
	handleBytes = 8 + attrBytes + hint.Bytes + 1 + 8 + 4 + 4 + 1
	volumeBytes = 4 + 3*8 + layoutBytes + 4 + 4 + 2
	quotaBytes  = 2*8 + 4 + 4*8 + 1
	serverBytes = 4 + 4 + 4*8 + 4 + 8 + 2*8 + 2*4 + 1 + stateBytes + 4

	closingBytes  = 8 + 1 + 1
	recallBytes   = 8 + 8 + 1
	claimedBytes  = 8 + 8 + 1 + 4 + 1 + 8 + 4
	regainedBytes = 1 + 1 + 8 + 8
)

// The arguments.
var (
	argIno      = u64(func(a *Args) *Ino { return &a.Ino })
	argDir      = u64(func(a *Args) *Ino { return &a.Dir })
	argNewDir   = u64(func(a *Args) *Ino { return &a.NewDir })
	argName     = text(func(a *Args) *string { return &a.Name }, NameMax)
	argFrom     = text(func(a *Args) *string { return &a.Name }, NameMax+1) // NextVolume of a name
	argNewName  = text(func(a *Args) *string { return &a.NewName }, NameMax)
	argClient   = text(func(a *Args) *string { return &a.Client }, clientMax)
	argOpen     = u8(func(a *Args) *OpenFlags { return &a.Open })
	argRename   = u8(func(a *Args) *RenameFlags { return &a.Rename })
	argCookie   = u64(func(a *Args) *uint64 { return &a.Cookie })
	argWithAttr = flag(func(a *Args) *bool { return &a.WithAttr })
	argIsDir    = flag(func(a *Args) *bool { return &a.IsDir })
	argCreate   = flag(func(a *Args) *bool { return &a.Create })
	argReplace  = flag(func(a *Args) *bool { return &a.Replace })
	argSync     = flag(func(a *Args) *bool { return &a.Sync })
	argLast     = flag(func(a *Args) *bool { return &a.Last })
	argSize     = i64(func(a *Args) *int64 { return &a.Size })
	argVersion  = u64(func(a *Args) *uint64 { return &a.Version })
	argShrink   = flag(func(a *Args) *bool { return &a.Shrink })
	argForce    = flag(func(a *Args) *bool { return &a.Force })
	argHandle   = u64(func(a *Args) *uint64 { return &a.Handle })
	argSession  = u64(func(a *Args) *uint64 { return &a.Session })
	argLimit    = one(func(a *Args) *Usage { return &a.Limit }, encUsage, decUsage)
	argServer   = one(func(a *Args) *Server { return &a.Server }, encServer, decServer)
	argChange   = one(func(a *Args) *Change { return &a.Change }, encChange, decChange)
	argClosing  = one(func(a *Args) *Closing { return &a.Closing }, encClosing, decClosing)
	argClosings = many(func(a *Args) *[]Closing { return &a.Closings }, CloseMax, closingBytes,
		encClosing, decClosing)
	argClaims = many(func(a *Args) *[]Claimed { return &a.Claims }, ClaimMax, claimedBytes,
		encClaimed, decClaimed)
	argLife = one(func(a *Args) *uint32 { return &a.Life },
		func(e *wire.Enc, v *uint32) { e.U32(*v) }, func(d *wire.Dec, v *uint32) { *v = d.U32() })

	argEpoch = one(func(a *Args) *uint32 { return &a.Epoch },
		func(e *wire.Enc, v *uint32) { e.U32(*v) }, func(d *wire.Dec, v *uint32) { *v = d.U32() })
	argSeen = one(func(a *Args) *VolumeState { return &a.Seen }, encVolumeState, decVolumeState)

	argMax = one(func(a *Args) *uint32 { return &a.Max },
		func(e *wire.Enc, v *uint32) { e.U32(*v) }, func(d *wire.Dec, v *uint32) { *v = d.U32() })
	argMask = one(func(a *Args) *SetMask { return &a.Mask },
		func(e *wire.Enc, v *SetMask) { e.U16(uint16(*v)) },
		func(d *wire.Dec, v *SetMask) { *v = SetMask(d.U16()) })
	argMac = one(func(a *Args) *[32]byte { return &a.Mac },
		func(e *wire.Enc, v *[32]byte) { e.Raw(v[:]) },
		func(d *wire.Dec, v *[32]byte) { copy(v[:], d.Raw(len(v))) })
	argValue = one(func(a *Args) *[]byte { return &a.Value },
		func(e *wire.Enc, v *[]byte) { e.Bytes(*v) },
		func(d *wire.Dec, v *[]byte) { *v = d.Bytes(XattrValue) })
	argHandles = many(func(a *Args) *[]uint64 { return &a.Handles }, RenewMax, 8,
		func(e *wire.Enc, v *uint64) { e.U64(*v) }, func(d *wire.Dec, v *uint64) { *v = d.U64() })
)

// argListen is |session u64 |seen u64 |wait ms u32 |map u64 |about? u8 |about |count u32 |
// |count x recall |, with about only if the byte before it is 1.
var argListen = one(func(a *Args) *Listening { return &a.Listen },
	func(e *wire.Enc, l *Listening) {
		e.U64(l.Session)
		e.U64(l.Seen)
		e.U32(l.WaitMs)
		e.U64(l.Map)
		encAbout(e, &l.About)
		encRecalls.enc(e, &l.Acks)
	},
	func(d *wire.Dec, l *Listening) {
		l.Session = d.U64()
		l.Seen = d.U64()
		l.WaitMs = d.U32()
		l.Map = d.U64()
		decAbout(d, &l.About)
		encRecalls.dec(d, &l.Acks)
	})

// encRecalls is a list of recalls in either direction.
var encRecalls = many(func(l *[]Recall) *[]Recall { return l }, RecallsMax, recallBytes,
	encRecall, decRecall)

// argCaller is |session u64 |request id 16 |leases u8 |uid u32 |gid u32 |count u32 |
// |count x group u32 |.
var argCaller = one(func(a *Args) *Caller { return &a.Caller },
	func(e *wire.Enc, c *Caller) {
		e.U64(c.Session)
		e.Raw(c.ReqID[:])
		e.Bool(c.Leases)
		e.U32(c.Cred.UID)
		e.U32(c.Cred.GID)
		e.U32(uint32(len(c.Cred.Groups)))
		for _, g := range c.Cred.Groups {
			e.U32(g)
		}
	},
	func(d *wire.Dec, c *Caller) {
		c.Session = d.U64()
		copy(c.ReqID[:], d.Raw(len(c.ReqID)))
		c.Leases = d.Bool()
		c.Cred.UID = d.U32()
		c.Cred.GID = d.U32()
		c.Cred.Groups = nil
		for range d.Count(GroupsMax, 4) {
			c.Cred.Groups = append(c.Cred.Groups, d.U32())
		}
	})

// argFile is |type u8 |mode u32 |umask u32 |rdev u32 |target |unit i64 |width i64 |pool |
// |checked u8 |sole u8 |.
var argFile = one(func(a *Args) *NewFile { return &a.File },
	func(e *wire.Enc, f *NewFile) {
		e.U8(uint8(f.Type))
		e.U32(f.Mode)
		e.U32(f.Umask)
		e.U32(f.Rdev)
		e.String(f.Target)
		e.I64(f.Unit)
		e.I64(int64(f.Width))
		e.String(f.Pool)
		e.Bool(f.Checked)
		e.Bool(f.Sole)
	},
	func(d *wire.Dec, f *NewFile) {
		f.Type = Type(d.U8())
		f.Mode = d.U32()
		f.Umask = d.U32()
		f.Rdev = d.U32()
		f.Target = d.String(SymlinkMax)
		f.Unit = d.I64()
		f.Width = int(d.I64())
		f.Pool = d.String(layout.PoolNameMax)
		f.Checked = d.Bool()
		f.Sole = d.Bool()
	})

// argSet is |mode u32 |uid u32 |gid u32 |size i64 |atime |mtime |.
var argSet = one(func(a *Args) *Attr { return &a.Attr },
	func(e *wire.Enc, a *Attr) {
		e.U32(a.Mode)
		e.U32(a.UID)
		e.U32(a.GID)
		e.I64(a.Size)
		a.Atime.Append(e)
		a.Mtime.Append(e)
	},
	func(d *wire.Dec, a *Attr) {
		a.Mode = d.U32()
		a.UID = d.U32()
		a.GID = d.U32()
		a.Size = d.I64()
		a.Atime.Decode(d)
		a.Mtime.Decode(d)
	})

// The answers.
var (
	resAttr = one(func(r *Result) *Attr { return &r.Attr }, encAttr, decAttr)
	resOff  = i64(func(r *Result) *int64 { return &r.Off })
	resAt   = one(func(r *Result) *Time { return &r.At },
		func(e *wire.Enc, t *Time) { t.Append(e) }, func(d *wire.Dec, t *Time) { t.Decode(d) })
	resHandle  = one(func(r *Result) *Handle { return &r.Handle }, encHandle, decHandle)
	resVolume  = one(func(r *Result) *Volume { return &r.Volume }, encVolume, decVolume)
	resTarget  = text(func(r *Result) *string { return &r.Target }, SymlinkMax)
	resEntries = many(func(r *Result) *[]Entry { return &r.Entries }, DirPageMax, entryBytes,
		encEntry, decEntry)
	resHandles = many(func(r *Result) *[]Handle { return &r.Handles }, RenewMax, handleBytes,
		encHandle, decHandle)
	resVolumes = many(func(r *Result) *[]Volume { return &r.Volumes }, VolumePageMax, volumeBytes,
		encVolume, decVolume)
	resQuota  = one(func(r *Result) *Quota { return &r.Quota }, encQuota, decQuota)
	resQuotas = many(func(r *Result) *[]Quota { return &r.Quotas }, QuotaPageMax, quotaBytes,
		encQuota, decQuota)
	resNames = many(func(r *Result) *[]string { return &r.Names }, xattrsMax, 4,
		func(e *wire.Enc, v *string) { e.String(*v) },
		func(d *wire.Dec, v *string) { *v = d.String(XattrName) })
	resValue = one(func(r *Result) *[]byte { return &r.Value },
		func(e *wire.Enc, v *[]byte) { e.Bytes(*v) },
		func(d *wire.Dec, v *[]byte) { *v = bytes.Clone(d.Bytes(XattrValue)) })
	resServers = many(func(r *Result) *[]Server { return &r.Servers }, listMax, serverBytes,
		func(e *wire.Enc, s *Server) {
			encServer(e, s)
			encState(e, s.State, s.Since, s.LastSeen)
			e.U32(s.Keys)
		},
		func(d *wire.Dec, s *Server) {
			decServer(d, s)
			decState(d, &s.State, &s.Since, &s.LastSeen)
			s.Up = s.State.Serves()
			s.Keys = d.U32()
		})
)

// Answers of leases and small files.
var (
	resFound   = one(func(r *Result) *Found { return &r.Found }, encFound, decFound)
	resScanned = one(func(r *Result) *Scanned { return &r.Scanned }, encScanned, decScanned)
	resClaims  = many(func(r *Result) *[]Regained { return &r.Claims }, ClaimMax, regainedBytes,
		encRegained, decRegained)
	resEnded = many(func(r *Result) *[]Ended { return &r.Ended }, CloseMax, 10,
		func(e *wire.Enc, v *Ended) {
			e.U16(uint16(v.Kind))
			e.U64(v.Version)
		},
		func(d *wire.Dec, v *Ended) { v.Kind, v.Version = errs.Kind(d.U16()), d.U64() })
	resSmall = one(func(r *Result) *SmallData { return &r.Small }, encSmall, decSmall)
)

// resHeard is |life u32 |epoch u64 |extended u8 |map u64 |count u32 |count x recall |.
var resHeard = one(func(r *Result) *Heard { return &r.Heard },
	func(e *wire.Enc, h *Heard) {
		e.U32(h.Life)
		e.U64(h.Epoch)
		e.Bool(h.Extended)
		e.U64(h.Map)
		encRecalls.enc(e, &h.Recalls)
	},
	func(d *wire.Dec, h *Heard) {
		h.Life = d.U32()
		h.Epoch = d.U64()
		h.Extended = d.Bool()
		h.Map = d.U64()
		encRecalls.dec(d, &h.Recalls)
	})

// resSession is |id u64 |lease ms u32 |cluster u64 |lease time ms u32 |life u32 |epoch u64 |
// |squashed u8 |read only u8 |.
var resSession = one(func(r *Result) *SessionInfo { return &r.Session },
	func(e *wire.Enc, s *SessionInfo) {
		e.U64(s.ID)
		e.U32(s.LeaseMs)
		e.U64(s.ClusterID)
		e.U32(s.LeaseTimeMs)
		e.U32(s.Life)
		e.U64(s.Epoch)
		e.Bool(s.Squashed)
		e.Bool(s.ReadOnly)
	},
	func(d *wire.Dec, s *SessionInfo) {
		s.ID = d.U64()
		s.LeaseMs = d.U32()
		s.ClusterID = d.U64()
		s.LeaseTimeMs = d.U32()
		s.Life = d.U32()
		s.Epoch = d.U64()
		s.Squashed = d.Bool()
		s.ReadOnly = d.Bool()
	})

// resTime is |Unix time in ms i64|.
var resTime = one(func(r *Result) *int64 { return &r.Time },
	func(e *wire.Enc, v *int64) { e.I64(*v) }, func(d *wire.Dec, v *int64) { *v = d.I64() })

// resFS is |total i64 |free i64 |files i64 |files max i64 |.
var resFS = one(func(r *Result) *FSStat { return &r.FS },
	func(e *wire.Enc, s *FSStat) {
		e.I64(s.Total)
		e.I64(s.Free)
		e.I64(s.Files)
		e.I64(s.FilesMax)
	},
	func(d *wire.Dec, s *FSStat) {
		s.Total = d.I64()
		s.Free = d.I64()
		s.Files = d.I64()
		s.FilesMax = d.I64()
	})
