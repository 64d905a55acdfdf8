package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"time"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/errs"
)

// What is said on the socket of a process that serves a device: one request and one answer, both
// JSON, for each connection. The folder that the socket is in belongs to root alone.
type (
	attachRequest struct {
		Do    string `json:"do"` // status or detach
		Force bool   `json:"force"`
	}
	attachAnswer struct {
		Error  string     `json:"error,omitempty"`
		Advice string     `json:"advice,omitempty"`
		Info   attachInfo `json:"info"`
	}
)

// attachInfo is one device, for people and programs.
type attachInfo struct {
	Name        string    `json:"name"`
	Device      string    `json:"device"`
	Link        string    `json:"link"`
	Target      string    `json:"target"`
	State       string    `json:"state"` // attached, waiting, lost or unserved
	ReadOnly    bool      `json:"read_only"`
	Shared      bool      `json:"shared"`
	Size        int64     `json:"size"`
	Connections int       `json:"connections"`
	Replaced    int64     `json:"replaced"`
	PID         int       `json:"pid"`
	Since       time.Time `json:"since"`
	Why         string    `json:"why,omitempty"`
}

// The values of its State.
const (
	isAttached = "attached"
	isWaiting  = "waiting"  // for servers
	isLost     = "lost"     // somebody else has the volume
	isUnserved = "unserved" // no process serves it
)

// answerMax is how long a process that serves may take to answer, detachMax how long to detach: it
// syncs what was written.
const (
	answerMax = 10 * time.Second
	detachMax = 90 * time.Second
)

// askAttached asks the process that serves a device. errs.Disconnected says that there is none.
func askAttached(ctx context.Context, p attach.Place, name string, r attachRequest) (
	*attachAnswer, error) {
	const op = "attach.ask"
	limit := answerMax
	if r.Do == "detach" {
		limit = detachMax
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", p.File(name, attach.ControlFile))
	if err != nil {
		return nil, errs.New(errs.Disconnected, op, name, err)
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var a attachAnswer
	if err = json.NewEncoder(nc).Encode(r); err == nil {
		err = json.NewDecoder(nc).Decode(&a)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errs.New(errs.TimedOut, op, name, ctx.Err())
	case err != nil:
		return nil, errs.New(errs.Disconnected, op, name, err)
	case a.Error != "":
		err = errors.New(a.Error)
		if a.Advice != "" {
			err = &hinted{err, a.Advice}
		}
		return &a, err
	}
	return &a, nil
}

// listenControl answers such requests until it is told to stop.
func listenControl(path string, answer func(*attachRequest) *attachAnswer) (
	stop func(), err error) {
	// Who served before may have been killed; this process has the lock.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go answerControl(nc, answer)
		}
	}()
	return func() { _ = ln.Close() }, nil
}

func answerControl(nc net.Conn, answer func(*attachRequest) *attachAnswer) {
	defer nc.Close()
	_ = nc.SetReadDeadline(time.Now().Add(answerMax))
	var r attachRequest
	if json.NewDecoder(nc).Decode(&r) != nil {
		return // whoever it was has left
	}
	_ = json.NewEncoder(nc).Encode(answer(&r))
}
