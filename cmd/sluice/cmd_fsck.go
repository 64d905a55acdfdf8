package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Exit codes of fsck(8).
const (
	fsckRepaired  = 1
	fsckLeft      = 4
	fsckFailed    = 8
	fsckUsage     = 16
	fsckCancelled = 32
)

const (
	fsckStep     = 8192 // records of one step, where no rate is asked for
	fsckAttempts = 3    // runs that are begun when the service forgets one
	findingsKept = 1000 // findings that --json prints
)

func newFsck() *cobra.Command {
	var f urlFlag
	o := &fsckOptions{}
	cmd := &cobra.Command{
		Use:   "fsck",
		Short: "Compare names, files and stripe objects of a running cluster with each other",
		Long: `Compares all records of the metadata with each other (names and inodes, link counts,
directories and their parents, counters, what waits to be removed), and the files with the stripe
objects of the I/O servers that are up, in both directions. Clients go on meanwhile: what looks
wrong is looked at again before it is believed.

With --repair it repairs what it finds, where that loses nothing: counts are corrected, names that
stand for nothing and objects that no file names are removed, files and directories without a name
get one in /lost+found. Data that is missing at a server cannot be repaired, nor records that cannot
be read.

Exit codes are those of fsck(8): 0 nothing found, 1 found and repaired, 4 something is left, 8 it
could not be finished, 16 usage, 32 interrupted.`,
		Example: "  sluice fsck\n  sluice fsck --repair --rate 5000",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &exitError{fsckUsage, refuse("fsck takes no arguments", "See: sluice help fsck")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.rate < 0 {
				return &exitError{fsckUsage, refuse("--rate is negative", "Leave it out for no limit")}
			}
			err := o.run(cmd, &f)
			var code *exitError
			switch {
			case err == nil || errors.As(err, &code):
				return err
			case errors.Is(err, context.Canceled):
				return &exitError{fsckCancelled, err}
			}
			return &exitError{fsckFailed, err}
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{fsckUsage, err} })
	f.add(cmd)
	addJSON(cmd, &o.asJSON, fsckReport{})
	cmd.Flags().BoolVar(&o.repair, "repair", false, "repair what can be repaired without loss")
	cmd.Flags().IntVar(&o.rate, "rate", 0, "look at no more records a second than this (0: no limit)")
	return cmd
}

// fsckOptions is what the user asked for.
type fsckOptions struct {
	repair, asJSON bool
	rate           int
}

// fsckReport is what fsck --json prints.
type fsckReport struct {
	Looked   uint64        `json:"looked"` // records and objects
	Found    uint64        `json:"found"`
	Repaired uint64        `json:"repaired"`
	Left     uint64        `json:"left"`     // not repaired
	Findings []fsckFinding `json:"findings"` // the first of them
}

type fsckFinding struct {
	Kind   string `json:"kind"`
	State  string `json:"state"`
	Ino    uint64 `json:"ino,omitempty"`
	Dir    uint64 `json:"dir,omitempty"`
	Name   string `json:"name,omitempty"`
	Server uint32 `json:"server,omitempty"`
	Text   string `json:"text"`
}

func stateName(s meta.FindingState) string {
	switch s {
	case meta.Repaired:
		return "repaired"
	case meta.Left:
		return "left"
	}
	return "found"
}

func (o *fsckOptions) run(cmd *cobra.Command, f *urlFlag) error {
	conn, err := dialMeta(cmd.Context(), f.base(), &f.by)
	if err != nil {
		return f.by.unreached(err, f.base(), "Is the cluster running at "+f.base()+"? Start one with: "+
			"sluice up   Of a cluster that is down: sluice meta check")
	}
	defer conn.close()
	var r *fsckReport
	for attempt := 1; ; attempt++ {
		r, err = o.once(cmd, conn.meta)
		if errs.KindOf(err) != errs.Stale || attempt == fsckAttempts {
			break
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "the metadata service was restarted: from the beginning")
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		err = printJSON(cmd, r)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d records and objects: %s, %d repaired, %d left\n",
			r.Looked, plural(int(r.Found), "finding"), r.Repaired, r.Left)
	}
	switch {
	case err != nil:
		return err
	case r.Left > 0:
		return &exitError{code: fsckLeft}
	case r.Found > 0:
		return &exitError{code: fsckRepaired}
	}
	return nil
}

// once makes one run.
func (o *fsckOptions) once(cmd *cobra.Command, service meta.Upkeep) (*fsckReport, error) {
	r := &fsckReport{Findings: []fsckFinding{}}
	line := newStatusLine(cmd, o.asJSON)
	defer line.end()
	step := meta.CheckStep{Run: 1 + rand.Uint64N(1<<63), Repair: o.repair, Max: fsckStep}
	if o.rate > 0 {
		step.Max = uint32(max(1, min(o.rate/4, fsckStep)))
	}
	begun := time.Now()
	for ; ; step.Step++ {
		page, err := service.Check(cmd.Context(), processCaller(), step)
		if err != nil {
			return r, err
		}
		r.Looked = page.Looked
		for i := range page.Findings {
			line.end()
			o.tell(cmd.OutOrStdout(), r, &page.Findings[i])
		}
		if page.End {
			return r, nil
		}
		line.show("%s (%d of %d): %d records and objects, %s", page.Stage, page.At+1, page.Stages,
			page.Looked, plural(int(r.Found), "finding"))
		if o.rate > 0 {
			due := begun.Add(time.Duration(float64(page.Looked) / float64(o.rate) * float64(time.Second)))
			if !wait.Sleep(cmd.Context(), time.Until(due)) {
				return r, cmd.Context().Err()
			}
		}
	}
}

// tell takes in a finding, and prints it where people read.
func (o *fsckOptions) tell(out io.Writer, r *fsckReport, f *meta.Finding) {
	r.Found++
	if f.State == meta.Repaired {
		r.Repaired++
	} else {
		r.Left++
	}
	if len(r.Findings) < findingsKept {
		r.Findings = append(r.Findings, fsckFinding{Kind: string(f.Kind), State: stateName(f.State),
			Ino: uint64(f.Ino), Dir: uint64(f.Dir), Name: f.Name, Server: f.Server, Text: f.Text})
	}
	if !o.asJSON {
		fmt.Fprintf(out, "%s, %s: %s\n", f.Kind, stateName(f.State), f.Text)
	}
}

// processCaller is who runs this program.
func processCaller() meta.Caller {
	c := meta.Caller{Cred: meta.Cred{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	binary.BigEndian.PutUint64(c.ReqID[:], 1+rand.Uint64N(1<<63))
	return c
}
