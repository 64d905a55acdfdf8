package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// servedMax is how long the keeper of a mount may take to say how it was mounted, servedMaxBytes
// how much it may say.
const (
	servedMax      = 2 * time.Second
	servedMaxBytes = 64 << 10
)

// servedSocket is where the keeper of a mount says how it was mounted; "" where the kernel has no
// number for it that it gives to no other mount. A name by the directory would not do: who kept
// what was mounted there before may not have left yet.
func servedSocket(dir string) string {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return ""
	}
	return fmt.Sprintf("@sluice-mount-options-%x", st.Mnt_id)
}

// tellServed answers those who ask how a mount was mounted: the values of all flags, by their
// names. It is of use to who remounts, so that a mount goes on without it where that fails.
func tellServed(cmd *cobra.Command, dir string) (stop func()) {
	flags := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f.Value.String() })
	text, err := json.Marshal(flags)
	name := servedSocket(dir)
	if err != nil || name == "" {
		return func() {}
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		return func() {}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(servedMax))
			if trusts(c.(*net.UnixConn)) {
				_, _ = c.Write(text) // who asked has gone, or reads it
			}
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close() }
}

// askServed asks how the mount at a directory was mounted; nil where nobody says it.
func askServed(dir string) (flags map[string]string) {
	name := servedSocket(dir)
	if name == "" {
		return nil
	}
	c, err := net.DialTimeout("unix", name, servedMax)
	if err != nil {
		return nil
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(servedMax))
	text, err := io.ReadAll(io.LimitReader(c, servedMaxBytes))
	if err != nil || json.Unmarshal(text, &flags) != nil {
		return nil
	}
	return flags
}
