package client

import (
	"context"

	"github.com/sluice-storage/sluice/client/internal/cache"
	"github.com/sluice-storage/sluice/meta"
)

// Identified is the value under RequestKey of a context: it names the operation that is done under
// the context, for ever, so that it is not done twice when another process repeats it because this
// one has died. Each use within the operation gets an id of its own.
type Identified interface {
	RequestID(use RequestUse) [16]byte

	// Repeated tells whether another process may have carried the operation out. Then its success
	// says nothing of what is there now.
	Repeated() bool
}

// RequestUse tells apart what one operation asks the service to do.
type RequestUse uint8

// The uses.
const (
	UseMake RequestUse = iota + 1
	UseLink
	UseRemove
	UseRename
	UseSetAttr
	UseSetXattr
	UseRemoveXattr
	UseOpen
	UseAppend
)

// RequestKey is the key of an Identified in a context.
type RequestKey struct{}

// settled is what is known after a change: nothing, if it may have been carried out long ago.
func settled(ctx context.Context, o cache.Outcome) cache.Outcome {
	if v, ok := ctx.Value(RequestKey{}).(Identified); ok && v.Repeated() {
		return cache.Outcome{}
	}
	return o
}

// identified is the caller of a request that has an id if its context gives it one.
func (fs *FS) identified(ctx context.Context, cred meta.Cred, use RequestUse) meta.Caller {
	c := fs.Caller(cred)
	if v, ok := ctx.Value(RequestKey{}).(Identified); ok {
		c.ReqID = v.RequestID(use)
	}
	return c
}

// openRequest is the id of a request that opens something. Only those have one of their context
// that change something, too.
func openRequest(ctx context.Context, changes bool) [16]byte {
	if v, ok := ctx.Value(RequestKey{}).(Identified); ok && changes {
		if id := v.RequestID(UseOpen); meta.HandleOf(id) != 0 {
			return id
		}
	}
	return newRequest()
}
