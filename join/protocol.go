// Package join is how hosts and clients become members of a cluster and stay it: a small HTTPS
// service beside the metadata service, which alone has the cluster's authority, and its clients. A
// joiner that was given a token checks by it whom it talks to before it sends anything, sends a
// request for a certificate of a key that stays with it, and gets a credential. Members are renewed
// by showing their certificate, and hear which authorities are valid and which certificates are
// not.
//
// Everything that a stranger can send is bounded: bytes, time, connections, handshakes that are
// under way, requests of one address (limits.go). Who is refused is logged once per peer and
// minute, and counted. What the registry keeps of tokens and members is package meta's;
// cryptography is package identity's.
//
// Read protocol.go first, then server.go, limits.go and client.go.
package join

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/sluice-storage/sluice/errs"
)

// The paths. All are asked by POST with a JSON document, and answer with one.
const (
	pathJoin   = "/v1/join"   // joinRequest -> identity.Grant
	pathRenew  = "/v1/renew"  // renewRequest -> identity.Grant; with a certificate
	pathNotice = "/v1/notice" // noticeRequest -> identity.Notice; with a certificate
)

// Bounds of documents, in bytes. A request for a certificate has about 120 bytes, and two more for
// three in JSON; a notice may carry identity.DeniedMax serial numbers of 35 bytes.
const (
	requestMax = 8 << 10
	answerMax  = 4 << 20
)

type joinRequest struct {
	Token   uint64 `json:"token"`
	Secret  []byte `json:"secret"`
	Name    string `json:"name"`    // empty: the token's
	Suggest string `json:"suggest"` // where neither says one
	Request []byte `json:"request"`
}

type renewRequest struct {
	Request []byte `json:"request"`
}

type noticeRequest struct {
	Denials uint64 `json:"denials"`
}

// failure is the answer to who is refused.
type failure struct {
	Kind errs.Kind `json:"kind"`
	Text string    `json:"text"`
}

// decode reads one document and nothing behind it.
func decode(r io.Reader, limit int64, to any) error {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return errs.New(errs.Disconnected, "join", "", err)
	}
	if int64(len(b)) > limit {
		return errs.Newf(errs.TooBig, "join", "", "a document of more than %d bytes", limit)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(to); err != nil {
		return errs.Newf(errs.Protocol, "join", "", "no document of this protocol: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errs.Newf(errs.Protocol, "join", "", "something stands behind the document")
	}
	return nil
}
