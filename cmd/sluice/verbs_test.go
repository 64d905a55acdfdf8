package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/internal/supervise"
)

// verbs are what a script can say.
func verbs() map[string]func(s *session, args []string) error {
	return map[string]func(s *session, args []string) error{
		"exec":   (*session).exec,   // PROGRAM ...: runs it to its end
		"shows":  (*session).shows,  // PATTERN PROGRAM ...: runs it until what it prints matches
		"start":  (*session).start,  // NAME PROGRAM ...: runs it behind the script
		"end":    (*session).end,    // INT|KILL NAME: ends it
		"stdout": (*session).grep,   // PATTERN: what the last exec printed matches
		"stderr": (*session).grepE,  // PATTERN: what it complained about
		"cmp":    (*session).cmp,    // FILE FILE: are equal
		"keep":   (*session).keep,   // FILE: gets what the last exec printed
		"copy":   (*session).copy,   // FILE FILE
		"exists": (*session).exists, // FILE
		"use":    (*session).use,    // DIR: the tools use the cluster in this folder
		"random": (*session).random, // FILE SIZE: noise
		"await":  (*session).await,  // FILE: waits until it is there; a socket, until it can be called
		"murder": (*session).murder, // DIR PROCESS: kills one of a cluster's, waits until it is back
		"spoil":  (*session).spoil,  // DIR: damages the metadata of a cluster that is down
		"code":   (*session).isCode, // NUMBER: with which the last exec ended
		"need":   (*session).need,   // PROGRAM|fuse: skips the script without it
	}
}

// shows is for what becomes true: that servers tell how much space a file takes, for one, which
// they may be too busy for.
func (s *session) shows(args []string) error {
	return eventually(args[0], func() bool {
		return s.exec(args[1:]) == nil && match(args[0], s.stdout) == nil
	})
}

func (s *session) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.dir, name)
}

func (s *session) grep(args []string) error  { return match(args[0], s.stdout) }
func (s *session) grepE(args []string) error { return match(args[0], s.stderr) }

func match(pattern, text string) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		panic(err) // not an error of the program: "!" must not hide it
	}
	if !re.MatchString(text) {
		return fmt.Errorf("no match")
	}
	return nil
}

func (s *session) cmp(args []string) error {
	a, err := os.ReadFile(s.path(args[0]))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(s.path(args[1]))
	if err == nil && !bytes.Equal(a, b) {
		err = fmt.Errorf("%d and %d bytes differ", len(a), len(b))
	}
	return err
}

func (s *session) keep(args []string) error {
	return os.WriteFile(s.path(args[0]), []byte(s.stdout), 0o644)
}

func (s *session) copy(args []string) error {
	data, err := os.ReadFile(s.path(args[0]))
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(args[1]), data, 0o644)
}

func (s *session) exists(args []string) error {
	_, err := os.Stat(s.path(args[0]))
	return err
}

func (s *session) use(args []string) error {
	c, err := openCluster(s.path(args[0]))
	if err != nil {
		return err
	}
	s.env["SLUICE_URL"] = c.readUp().URL
	delete(s.env, identity.CredentialEnv)
	if c.cfg.Security.Keyed() {
		s.env[identity.CredentialEnv] = c.hostCredentialFile()
	}
	if s.env["SLUICE_URL"] == "" {
		return fmt.Errorf("the cluster does not run")
	}
	return nil
}

func (s *session) random(args []string) error {
	size, err := parseSize(args[1])
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(args[0]), pattern(size), 0o640)
}

// pattern is noise, the same each time.
func pattern(size int64) []byte {
	p := make([]byte, size)
	x := uint64(88172645463325252)
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x)
	}
	return p
}

func eventually(what string, ok func() bool) error {
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("never: %s", what)
		}
	}
	return nil
}

func (s *session) await(args []string) error {
	return eventually(args[0], func() bool {
		if s.exists(args) != nil {
			return false
		}
		info, err := os.Stat(s.path(args[0]))
		if err != nil || info.Mode()&os.ModeSocket == 0 {
			return err == nil
		}
		c, err := net.Dial("unix", s.path(args[0])) // it is there before somebody listens
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (s *session) murder(args []string) error {
	c, err := openCluster(s.path(args[0]))
	if err != nil {
		return err
	}
	before, err := c.process(args[1])
	if err != nil {
		return err
	}
	p, err := os.FindProcess(before.PID)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return err
	}
	return eventually(args[1]+" is back", func() bool {
		now, err := c.process(args[1])
		return err == nil && now.Restarts > before.Restarts && (args[1] != "meta" || s.answers(args[0]))
	})
}

// answers tells whether a cluster's metadata service listens: tools wait for it, but not as long
// as it may take to start on a busy machine.
func (s *session) answers(dir string) bool {
	addr, err := os.ReadFile(filepath.Join(s.path(dir), "run", "meta.addr"))
	if err != nil {
		return false
	}
	c, err := net.Dial("tcp", strings.TrimSpace(string(addr)))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func (c *cluster) process(name string) (supervise.Process, error) {
	state, err := supervise.ReadState(c.stateFile())
	if err != nil {
		return supervise.Process{}, err
	}
	for _, p := range state.Processes {
		if p.Name == name {
			return p, nil
		}
	}
	return supervise.Process{}, fmt.Errorf("no process %s", name)
}

func (s *session) need(args []string) error {
	if args[0] == "fuse" && canMount() {
		return nil
	}
	for _, dir := range filepath.SplitList(s.env["PATH"]) {
		if _, err := os.Stat(filepath.Join(dir, args[0])); err == nil {
			return nil
		}
	}
	s.t.Skipf("needs %s: make deps", args[0])
	return nil
}
