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
//	|max file u64 |len u32 |addr |incarnation u64 |start u64 |len u32 |host |len u32 |version |
//	|leaving u8 |
//
// The service's own view is not part of it. A Join that somebody recorded can be repeated by him
// while the server runs: it says nothing that was not true once, and the transport keeps him out.
// When the server has been started again it is refused.
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
	e.U64(s.Incarnation)
	e.U64(s.Start)
	e.String(s.Host)
	e.String(s.Version)
	e.Bool(s.Leaving)
	m := hmac.New(sha256.New, key[:])
	m.Write(e.B)
	return [32]byte(m.Sum(nil))
}

// VerifyJoin tells whether the mac of a Join was made with the server's key.
func VerifyJoin(key capability.Key, s *Server, mac [32]byte) bool {
	want := SignJoin(key, s)
	return hmac.Equal(want[:], mac[:])
}

// VerifyJoinBy is VerifyJoin for any of the cluster's keys.
func VerifyJoinBy(ring capability.Ring, s *Server, mac [32]byte) bool {
	// A server's key is derived anew: nothing is kept for an id that somebody merely claims.
	for _, k := range ring {
		if VerifyJoin(k.Key.ServerKey(s.ID), s, mac) {
			return true
		}
	}
	return false
}
