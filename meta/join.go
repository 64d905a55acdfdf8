package meta

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/wire"
)

// SignJoin makes the mac of a Join with the server's own key: HMAC-SHA256 over
//
//	|"sluice join\0" |id u32 |store id u64 |verifier u64 |total u64 |free u64 |life u32 |
//	|max file u64 |len u32 |addr |
//
// Up and LastSeen are the service's to say and are not part of it. A Join that somebody recorded
// can be repeated by him: it says nothing that was not true once, and the transport keeps him
// out.
func SignJoin(key capability.Key, s *Server) [32]byte {
	e := wire.Enc{B: []byte("sluice join\x00")}
	e.U32(s.ID)
	e.U64(s.StoreID)
	e.U64(s.Verifier)
	e.I64(s.Total)
	e.I64(s.Free)
	e.U32(s.Life)
	e.U64(s.MaxFile)
	e.String(s.Addr)
	m := hmac.New(sha256.New, key[:])
	m.Write(e.B)
	return [32]byte(m.Sum(nil))
}

// VerifyJoin tells whether the mac of a Join was made with the server's key.
func VerifyJoin(key capability.Key, s *Server, mac [32]byte) bool {
	want := SignJoin(key, s)
	return hmac.Equal(want[:], mac[:])
}
