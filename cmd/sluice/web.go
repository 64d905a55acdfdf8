package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/peer"
)

const (
	adminOff     = "off"
	defaultAdmin = "127.0.0.1:0"
)

// adminFlag says where a process shows its metrics and its health.
type adminFlag struct {
	listen  string
	clients []string // those that an address beyond loopback is shown to, besides hosts

	keeper peer.Identity // by which an address beyond loopback knows who comes; nil: there is none
}

func (f *adminFlag) add(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&f.listen, "admin", otherwise,
		"address for Prometheus (/metrics) and health (/healthz); port 0: any; off: none; beyond "+
			"loopback it is https, for members of the cluster")
}

// addClients is for processes that may be shown to others than hosts.
func (f *adminFlag) addClients(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.clients, "admin-client", nil,
		"`NAME` of a client that may see an admin address beyond loopback; repeat it for more")
}

// adminArgs are the flags for a child that shows itself at an address.
func adminArgs(cfg *config.Config, listen string) []string {
	args := []string{"--admin", listen}
	for _, name := range cfg.AdminClients {
		args = append(args, "--admin-client", name)
	}
	return args
}

// check refuses what cannot be listened at. Processes that share the flag cannot share a port.
func (f *adminFlag) check(shared bool) error {
	if f.listen == adminOff {
		return nil
	}
	_, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return refuse("--admin "+f.listen+" is no address", "Write HOST:PORT, or off")
	}
	for _, name := range f.clients {
		if err := identity.CheckName(name); err != nil {
			return hint(err, "See which clients there are: sluice client ls")
		}
	}
	if shared && port != "0" {
		return refuse("--admin "+f.listen+": several processes cannot share a port",
			"Write port 0; sluice status shows the addresses")
	}
	return nil
}

// webCloseMax is how long a scrape may go on when a process ends.
const webCloseMax = time.Second

// serve shows a process at its admin address, and writes that into a file for others to find, until
// close is called. Its profiles are at a socket beside that file, for its owner alone.
func (f *adminFlag) serve(file string, o admin.WebOptions) (stop func(), err error) {
	if f.listen == adminOff {
		return func() {}, forgetAddr(file)
	}
	if err := f.check(false); err != nil {
		return nil, err
	}
	o.Listen = f.listen
	if f.keeper != nil {
		o.TLS = adminTLS(f.keeper, f.clients)
	}
	if o.Profiles, err = listenProfiles(file); err != nil && o.Logger != nil {
		o.Logger.Warn("there are no profiles of this process", "err", err)
	}
	w, err := admin.ServeWeb(o)
	if err != nil {
		return nil, hint(err, "Choose another address with --admin, or none: --admin off")
	}
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), webCloseMax)
		defer cancel()
		if err := errors.Join(w.Close(ctx), forgetAddr(file)); err != nil && o.Logger != nil {
			o.Logger.Warn("the admin address did not close cleanly", "err", err)
		}
	}
	if file != "" {
		err = writeFile(file, []byte(w.Addr()+"\n"), 0o644)
	}
	if err != nil {
		stop()
		return nil, err
	}
	if o.Logger != nil {
		o.Logger.Info("metrics are at "+w.URL()+"/metrics", slog.String("addr", w.Addr()))
	}
	return stop, nil
}

func forgetAddr(file string) error {
	if file == "" {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// adminSuffix is that of the files in the folder run that hold admin addresses.
const adminSuffix = ".admin"

// profilesSuffix is that of the sockets at which processes show their profiles.
const profilesSuffix = ".profiles"

// listenProfiles opens the socket that belongs to the file of an admin address; nil without one.
func listenProfiles(file string) (net.Listener, error) {
	name, ok := strings.CutSuffix(file, adminSuffix)
	if !ok {
		return nil, nil
	}
	if len(name+profilesSuffix) > pathMax {
		return nil, errs.Newf(errs.NameTooLong, "listen", name+profilesSuffix, "at most %d bytes",
			pathMax)
	}
	return listenUnix(name+profilesSuffix, false)
}

// adminFile is where the admin address of a process of the cluster is found.
func (c *cluster) adminFile(process string) string { return c.path("run", process+adminSuffix) }

// adminAddrs are the admin addresses of all processes that have one.
func (c *cluster) adminAddrs() map[string]string {
	files, err := filepath.Glob(c.path("run", "*"+adminSuffix))
	if err != nil {
		return nil
	}
	all := map[string]string{}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			all[strings.TrimSuffix(filepath.Base(file), adminSuffix)] = strings.TrimSpace(string(text))
		}
	}
	return all
}
