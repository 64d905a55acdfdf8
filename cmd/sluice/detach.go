package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A detached process tells the one that started it when it is ready, through a pipe whose number is
// readyEnv. It is the same program without -d.
const (
	readyEnv = "SLUICE_READY"
	readyFD  = 3
)

// readyNote is what goes through the pipe.
type readyNote struct {
	Text string `json:"text"`
}

type detachOptions struct {
	log  string   // where its output goes
	args []string // of the program
}

// withoutDetach takes -d out of a command line, in all its forms.
func withoutDetach(args []string) []string {
	var kept []string
	for _, a := range args {
		if a != "-d" && a != "--detach" && a != "--detach=true" && a != "-d=true" {
			kept = append(kept, a)
		}
	}
	return kept
}

func isDetached() bool { return os.Getenv(readyEnv) != "" }

// detach runs the program again in a session of its own, waits until it is ready or dead, and
// prints what it has to say.
func detach(cmd *cobra.Command, o detachOptions) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := openLog(o.log)
	if err != nil {
		return err
	}
	defer log.Close()
	start, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	child := exec.Command(self, o.args...)
	child.Args[0] = os.Args[0] // for the advice that it gives
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", readyEnv, readyFD))
	child.Stdout, child.Stderr = log, log
	child.ExtraFiles = []*os.File{w}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()
	w.Close()
	if err != nil {
		return err
	}
	var note readyNote
	if err := json.NewDecoder(r).Decode(&note); err != nil {
		_ = child.Wait() // it is dead, and said why
		return lastWords(log, start)
	}
	fmt.Fprint(cmd.OutOrStdout(), note.Text)
	return child.Process.Release()
}

// lastWords makes an error of what the process wrote since start: its own error, advice and all.
func lastWords(log *os.File, start int64) error {
	text, err := io.ReadAll(io.NewSectionReader(log, start, 64<<10))
	if err != nil {
		return err
	}
	said := strings.TrimSpace(string(text))
	if i := strings.LastIndex(said, "sluice: "); i >= 0 {
		said = said[i+len("sluice: "):]
	}
	if said == "" {
		said = "the process in the background died silently"
	}
	what, advice, ok := strings.Cut(said, "\n")
	if !ok {
		return hint(errors.New(said), "All it said is in %s", log.Name())
	}
	return &hinted{errors.New(what), strings.TrimSpace(advice)}
}

// announce says that the process is ready: to the one that started it, if it is detached, otherwise
// on standard output.
func announce(cmd *cobra.Command, text string) {
	if !isDetached() {
		fmt.Fprint(cmd.OutOrStdout(), text)
		return
	}
	w := os.NewFile(readyFD, "ready")
	_ = json.NewEncoder(w).Encode(readyNote{text}) // nobody waits any more: fine
	_ = w.Close()
}

// keepReadyPipe stops children from inheriting the pipe, which would hide this process' death.
func keepReadyPipe() {
	if isDetached() {
		unix.CloseOnExec(readyFD)
	}
}
