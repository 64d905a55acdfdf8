package fabric

import "github.com/sluice-storage/sluice/errs"

// CheckPost tells whether a chain is well formed for an endpoint with these limits whose peer said
// this hello: nil or errs.Invalid. Every provider calls it first in Post, so that misuse looks the
// same everywhere. The provider itself checks that a Region is open and of its domain. It does not
// allocate unless it fails.
func CheckPost(caps *Caps, peer *Hello, wrs []WR) error {
	for i := range wrs {
		if why := checkWR(caps, peer, &wrs[i]); why != "" {
			return errs.Newf(errs.Invalid, "fabric.Post", "", "request %d: %s", i, why)
		}
	}
	return nil
}

// CheckRecv is CheckPost for receives.
func CheckRecv(caps *Caps, recvs []Recv) error {
	for i := range recvs {
		r := &recvs[i]
		if why := checkPiece(caps, r.Reg, r.Buf); why != "" {
			return errs.Newf(errs.Invalid, "fabric.PostRecv", "", "receive %d: %s", i, why)
		}
	}
	return nil
}

// CheckGrant tells whether a grant of length bytes at off in mem, with these rights, makes sense.
func CheckGrant(mem []byte, off, length int, rights Rights) error {
	why := ""
	switch {
	case off < 0 || length < 0 || off > len(mem) || length > len(mem)-off:
		why = "the range leaves the region"
	case rights == 0 || rights&^(RemoteRead|RemoteWrite) != 0:
		why = "no such rights"
	}
	if why != "" {
		return errs.Newf(errs.Invalid, "fabric.Grant", "", "%s", why)
	}
	return nil
}

// CheckCQ tells whether the options of a queue are well formed.
func CheckCQ(opts CQOptions) error {
	if opts.Depth < 1 {
		return errs.Newf(errs.Invalid, "fabric.NewCQ", "", "depth %d", opts.Depth)
	}
	return nil
}

// CheckEndpoint tells whether cfg is within the limits and fills in the zero fields of its Hello.
func CheckEndpoint(caps *Caps, cfg *EndpointConfig) error {
	why := ""
	switch {
	case cfg.SendCQ == nil || cfg.RecvCQ == nil:
		why = "a completion queue is missing"
	case cfg.SendDepth < 1 || cfg.SendDepth > caps.QueueDepth:
		why = "SendDepth is out of range"
	case cfg.RecvDepth < 1 || cfg.RecvDepth > caps.QueueDepth:
		why = "RecvDepth is out of range"
	case int64(cfg.Hello.MaxMessage) > int64(caps.MaxMessage):
		why = "Hello.MaxMessage is above the domain's limit"
	}
	if why != "" {
		return errs.Newf(errs.Invalid, "fabric.EndpointConfig", "", "%s", why)
	}
	if cfg.Hello.Version == 0 {
		cfg.Hello.Version = HelloVersion
	}
	if cfg.Hello.MaxMessage == 0 {
		cfg.Hello.MaxMessage = uint32(caps.MaxMessage)
	}
	if cfg.Hello.RecvDepth == 0 {
		cfg.Hello.RecvDepth = uint32(cfg.RecvDepth)
	}
	return nil
}

// Len is the number of bytes that the request moves from here, or to here.
func (wr *WR) Len() int {
	n := 0
	for i := range wr.Local {
		n += len(wr.Local[i].Buf)
	}
	return n
}

// checkWR returns what is wrong with a request, or nothing.
func checkWR(caps *Caps, peer *Hello, wr *WR) string {
	if wr.Op < OpSend || wr.Op > OpRead {
		return "no such operation"
	}
	if wr.Flags&^flagsAll != 0 {
		return "unknown flag"
	}
	if len(wr.Local) > caps.MaxSge {
		return "more pieces than MaxSge"
	}
	for i := range wr.Local {
		if why := checkPiece(caps, wr.Local[i].Reg, wr.Local[i].Buf); why != "" {
			return why
		}
	}
	n := wr.Len()
	switch {
	case wr.Op == OpSend && (n > caps.MaxMessage || int64(n) > int64(peer.MaxMessage)):
		return "message longer than MaxMessage of this side or of the peer"
	case wr.Op != OpSend && n > caps.MaxTransfer:
		return "transfer longer than MaxTransfer"
	case wr.Op != OpSend && wr.Remote.Len != uint64(n):
		return "Remote.Len differs from the local length"
	case wr.Flags&FlagInline != 0 && wr.Op == OpRead:
		return "a Read cannot be inline"
	case wr.Flags&FlagInline != 0 && n > caps.MaxInline:
		return "inline data longer than MaxInline"
	}
	return ""
}

func checkPiece(caps *Caps, reg Region, buf []byte) string {
	switch {
	case reg == nil && !caps.AnyMemory && len(buf) > 0:
		return "memory without a Region"
	case reg != nil && len(buf) > 0 && OffsetIn(reg.Bytes(), buf) < 0:
		return "memory outside of its Region"
	}
	return ""
}
