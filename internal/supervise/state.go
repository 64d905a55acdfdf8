package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// ExitsKept is how many exits of a process the state remembers; Restarts counts all of them.
const ExitsKept = 32

// State is the content of the state file.
type State struct {
	PID       int       `json:"pid"` // the supervisor's
	Started   time.Time `json:"started"`
	Processes []Process `json:"processes"`
}

// Status says what a process is doing.
type Status string

// The values of Status.
const (
	Running Status = "running"
	Waiting Status = "waiting" // it died and will be started again
	Stopped Status = "stopped"
)

// Process is what is known of one process.
type Process struct {
	Name     string    `json:"name"`
	PID      int       `json:"pid"`
	Status   Status    `json:"status"`
	Since    time.Time `json:"since"` // when it was started last
	Restarts int       `json:"restarts"`
	Exits    []Exit    `json:"exits,omitempty"` // oldest first, the last ExitsKept
}

// Exit is one death.
type Exit struct {
	At     time.Time `json:"at"`
	PID    int       `json:"pid"`
	RanMs  int64     `json:"ran_ms"`
	Code   int       `json:"code"`
	Signal string    `json:"signal,omitempty"` // set when a signal killed it
	Said   string    `json:"said,omitempty"`   // its last words, if it failed by itself
}

// Ran is how long the process lived.
func (e Exit) Ran() time.Duration { return time.Duration(e.RanMs) * time.Millisecond }

// well tells whether the process ended as it should.
func (e Exit) well() bool { return e.PID != 0 && e.Code == 0 && e.Signal == "" }

// How is the exit in words.
func (e Exit) How() string {
	switch {
	case e.Signal != "":
		return "killed by " + e.Signal
	case e.PID == 0:
		return "could not be started: " + e.Said
	case e.Said != "":
		return fmt.Sprintf("exit code %d: %s", e.Code, e.Said)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

func (p *Process) ended(e Exit, s Status) {
	p.Status = s
	p.Exits = append(p.Exits, e)
	if len(p.Exits) > ExitsKept {
		p.Exits = append([]Exit(nil), p.Exits[len(p.Exits)-ExitsKept:]...)
	}
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}

// write replaces the file atomically. It is not synced: after a power cut there is nothing left to
// supervise.
func (s State) write(name string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return errs.Wrap("supervise.State", name, err)
	}
	temp := name + ".tmp"
	if err := os.WriteFile(temp, append(text, '\n'), 0o644); err != nil {
		return errs.Wrap("supervise.State", name, err)
	}
	return errs.Wrap("supervise.State", name, os.Rename(temp, name))
}

// ReadState reads a state file.
func ReadState(name string) (State, error) {
	var s State
	text, err := os.ReadFile(name)
	if err != nil {
		return s, errs.Wrap("supervise.ReadState", name, err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, errs.New(errs.Corrupt, "supervise.ReadState", name, err)
	}
	return s, nil
}
