//go:build !cgo || !linux

package early

func parent() int { return -1 }
