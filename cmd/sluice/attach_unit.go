package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// printAttachUnit prints the template of a unit that attaches a volume.
func printAttachUnit(cmd *cobra.Command) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), attachUnitText(self))
	return err
}

// attachUnitText is the template. systemd unmounts what is on the device before it stops the unit:
// mounts with _netdev come behind remote-fs-pre.target, and end before it. The supervisor is
// systemd itself: a process that dies is started again, and goes on with the device.
func attachUnitText(self string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# sluice-attach@.service, made by: sluice attach --systemd")
	line("# systemctl enable --now sluice-attach@VOLUME attaches a volume as /dev/sluice/VOLUME.")
	line("# /etc/sluice/attach/VOLUME, if it is there, has flags and the environment:")
	line("#   ATTACH_FLAGS=--shared --connections=8")
	line("#   SLUICE_URL=sluice://10.1.0.1:9400")
	line("[Unit]")
	line("Description=sluice volume %%I as a block device")
	line("Documentation=man:sluice-attach(1)")
	line("Wants=network-online.target remote-fs-pre.target")
	line("After=network-online.target sluice.service modprobe@nbd.service")
	line("Before=remote-fs-pre.target")
	line("StartLimitIntervalSec=0")
	line("")
	line("[Service]")
	line("Type=notify")
	line("NotifyAccess=main")
	line("EnvironmentFile=-/etc/sluice/attach/%%i")
	line("ExecStart=%s attach --foreground $ATTACH_FLAGS -- %%I", unitWord(self))
	line("# It detaches when nobody uses the device any more, and waits for that.")
	line("TimeoutStopSec=90")
	line("# A process that was killed is succeeded at once: programs wait for it.")
	line("Restart=on-failure")
	line("RestartSec=100ms")
	line("KillMode=mixed")
	line("LimitMEMLOCK=infinity")
	line("LimitNOFILE=1048576")
	line("TasksMax=infinity")
	line("OOMScoreAdjust=-1000")
	line("UMask=0077")
	line("")
	line("[Install]")
	line("WantedBy=remote-fs.target")
	return b.String()
}
