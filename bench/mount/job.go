package mount

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Job is what one child of the bench does, in one thread, with plain system calls. A child, because
// its processor time can be told from the bench's, and because several of them are processes of
// their own, as programs are.
type Job struct {
	Kind  string        `json:"kind"`
	Path  string        `json:"path"`            // the file, or the folder of files
	To    string        `json:"to,omitempty"`    // where a copy goes
	Block int64         `json:"block,omitempty"` // bytes of a read or write; of a file that is made
	Bytes int64         `json:"bytes,omitempty"` // of the file, or to be copied
	From  int64         `json:"from,omitempty"`  // the first file; where a copy begins
	Files int64         `json:"files,omitempty"`
	Times int64         `json:"times,omitempty"` // how often, of what is done to the same files
	For   time.Duration `json:"for,omitempty"`   // how long, of what has no end
	Seed  uint64        `json:"seed,omitempty"`
}

// The kinds of jobs.
const (
	jobWrite  = "write"  // a file, in blocks, and sync it
	jobRead   = "read"   // it
	jobRandom = "random" // read blocks at random, past the kernel's cache
	jobCreate = "create" // files, write a block into each, close them
	jobStat   = "stat"
	jobUnlink = "unlink"
	jobOpen   = "open" // files one after the other, and close them
	jobList   = "list" // a folder
	jobCopy   = "copy" // a range of a file into another
	jobCheck  = "check"
)

// Done is what a job has done.
type Done struct {
	Ops   int64         `json:"ops"`
	Bytes int64         `json:"bytes"`
	CPU   time.Duration `json:"cpu"` // of the process, in between
	Error string        `json:"error,omitempty"`
}

// ServeJob is the child: it reads a Job, a line of JSON, prepares it and says so by a line, waits
// for a line, does it, and tells what it has done as a line of JSON.
func ServeJob(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return errs.New(errs.Invalid, "bench-job", "", err)
	}
	do, end, err := j.prepare()
	if err != nil {
		return json.NewEncoder(out).Encode(Done{Error: err.Error()})
	}
	defer end()
	if _, err := fmt.Fprintln(out, "{}"); err != nil { // an empty Done: ready
		return err
	}
	if _, err := lines.ReadBytes('\n'); err != nil {
		return err
	}
	before := ownTime()
	d, err := do()
	d.CPU = ownTime() - before
	if err != nil {
		d.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(d)
}

func ownTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// prepare opens what belongs to the job but not to what is measured.
func (j *Job) prepare() (do func() (Done, error), end func(), err error) {
	end = func() {}
	switch j.Kind {
	case jobWrite:
		buf := fill(j.Block, j.Seed)
		return func() (Done, error) { return j.write(buf) }, end, nil
	case jobRead, jobRandom:
		return j.prepareRead()
	case jobCreate:
		buf := fill(j.Block, j.Seed)
		one := func(name string) error { return make1(name, buf) }
		return func() (Done, error) { return j.each(one) }, end, nil
	case jobStat:
		return func() (Done, error) { return j.each(stat1) }, end, nil
	case jobUnlink:
		return func() (Done, error) { return j.each(unix.Unlink) }, end, nil
	case jobOpen:
		return func() (Done, error) { return j.each(open1) }, end, nil
	case jobList:
		return j.list, end, nil
	case jobCopy:
		return j.copy, end, nil
	case jobCheck:
		return j.check, end, nil
	}
	return nil, nil, errs.Newf(errs.Invalid, "bench-job", j.Kind, "there is no such job")
}

// again repeats a system call that a signal has interrupted: Go's runtime sends some.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
