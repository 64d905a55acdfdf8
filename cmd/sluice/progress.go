package main

import (
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"
)

// progress is told what a copy does.
type progress interface {
	expect(bytes int64)
	add(bytes int64)
	end()
}

// newProgress shows a bar where somebody is looking.
func newProgress(cmd *cobra.Command, quiet bool) progress {
	f, ok := cmd.ErrOrStderr().(*os.File)
	if quiet || !ok || !isTerminal(f) {
		return silent{}
	}
	p := mpb.New(mpb.WithOutput(f), mpb.WithWidth(50))
	bar := p.AddBar(0,
		mpb.PrependDecorators(decor.CountersKibiByte("% .1f of % .1f")),
		mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), "% .1f")),
	)
	return &shown{pool: p, bar: bar}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

type silent struct{}

func (silent) expect(int64) {}
func (silent) add(int64)    {}
func (silent) end()         {}

type shown struct {
	pool  *mpb.Progress
	bar   *mpb.Bar
	total atomic.Int64
}

func (s *shown) expect(bytes int64) { s.bar.SetTotal(s.total.Add(bytes), false) }
func (s *shown) add(bytes int64)    { s.bar.IncrInt64(bytes) }

func (s *shown) end() {
	s.bar.SetTotal(-1, true) // whatever was counted is all there is
	s.pool.Wait()
}
