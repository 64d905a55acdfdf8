package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// unitName is what the unit is called.
const unitName = "sluice.service"

// unit prints or installs the unit that runs a host's file.
func (o *serveOptions) unit(cmd *cobra.Command) error {
	file, err := findConfig(o.file)
	if err != nil {
		return err
	}
	if _, err := loadConfig(file); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	user := os.Geteuid() != 0
	text := unitText(self, file, user)
	if !o.install {
		_, err := fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	dir, systemctl := "/etc/systemd/system", "systemctl"
	if user {
		home, err := os.UserConfigDir()
		if err != nil {
			return err
		}
		dir, systemctl = filepath.Join(home, "systemd", "user"), "systemctl --user"
	}
	if o.unitDir != "" {
		dir = o.unitDir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, unitName)
	old, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if string(old) != text {
		if err := replaceFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Installed %s.\nStart it with: %[2]s daemon-reload && %[2]s "+
		"enable --now sluice\n", name, systemctl)
	return nil
}

// unitText is the unit. Options that would give the process a view of its own of the file systems
// (ProtectSystem, PrivateTmp, PrivateDevices and the like) are left out, because what it mounts
// would then be seen by nobody else; so are those that keep it from devices, because RDMA and block
// devices are what it serves.
func unitText(self, file string, user bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Made by: sluice serve --systemd")
	line("[Unit]")
	line("Description=sluice: what %s says", unitWord(file))
	line("Documentation=man:sluice-serve(1)")
	if !user {
		line("Wants=network-online.target")
		line("After=network-online.target local-fs.target modprobe@fuse.service")
	}
	line("StartLimitIntervalSec=0")
	line("")
	line("[Service]")
	line("Type=notify")
	line("NotifyAccess=main")
	line("ExecStart=%s serve --config %s", unitWord(self), unitWord(file))
	line("ExecReload=/bin/kill -HUP $MAINPID")
	line("Restart=on-failure")
	line("RestartSec=2")
	line("WatchdogSec=60")
	line("# Starting reads logs and may wait for the metadata service; stopping drains.")
	line("TimeoutStartSec=%d", int(readyMax.Seconds())+60)
	line("TimeoutStopSec=%d", int(stopMax.Seconds())+20)
	line("KillMode=mixed")
	line("")
	line("# Memory that network cards write to is locked; every client is a few descriptors.")
	line("LimitMEMLOCK=infinity")
	line("LimitNOFILE=1048576")
	line("TasksMax=infinity")
	line("OOMScoreAdjust=-500")
	line("UMask=0077")
	line("")
	line("# What does not hide mounts from the rest of the host, nor devices from this process.")
	if user {
		line("LockPersonality=yes")
	} else {
		line("NoNewPrivileges=yes")
		line("CapabilityBoundingSet=CAP_SYS_ADMIN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_CHOWN " +
			"CAP_FOWNER CAP_FSETID CAP_IPC_LOCK CAP_SYS_RESOURCE CAP_NET_BIND_SERVICE CAP_KILL")
		line("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_IB")
		line("RestrictNamespaces=yes")
		line("RestrictRealtime=yes")
		line("LockPersonality=yes")
		line("SystemCallArchitectures=native")
	}
	line("")
	line("[Install]")
	if user {
		line("WantedBy=default.target")
	} else {
		line("WantedBy=multi-user.target")
	}
	return b.String()
}

// unitWord is a word of a unit's command line. Percent signs and dollars mean something there.
func unitWord(s string) string {
	s = strings.NewReplacer(`%`, `%%`, `$`, `$$`, `\`, `\\`, `"`, `\"`).Replace(s)
	if strings.ContainsAny(s, " \t'\"") {
		return `"` + s + `"`
	}
	return s
}
