package vmtest

import (
	"fmt"
	"os"
	"strings"
)

// portName is how the agent finds its serial port; vmtest/agent has the same words.
const portName = "sluice.vmtest"

// The processor of emulated guests is an old one on purpose. Newer ones have more to save at every
// switch, and their block moves ("rep movsb") are emulated byte by byte.
const emulatedCPU = "Westmere"

// acceleration is what runs the guests' code: the host's processor through KVM where it can, or
// else QEMU's emulation. $SLUICE_VMTEST_ACCEL (kvm, tcg) decides otherwise.
func acceleration() (accel, cpu string) {
	forced := os.Getenv("SLUICE_VMTEST_ACCEL")
	if forced == "kvm" || forced == "" && hasKVM("/dev/kvm", "/proc/cpuinfo") {
		return "kvm", "host"
	}
	return "tcg,thread=multi", emulatedCPU
}

// hasKVM tells whether there is KVM on top of hardware. The device alone does not say so: without
// the processor's help it may be there and hang in the middle of a stock kernel's boot.
func hasKVM(device, cpuinfo string) bool {
	text, err := os.ReadFile(cpuinfo)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		name, flags, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) != "flags" {
			continue
		}
		if flags := " " + strings.TrimSpace(flags) + " "; !strings.Contains(flags, " vmx ") &&
			!strings.Contains(flags, " svm ") {
			return false
		}
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return false
		}
		f.Close()
		return true
	}
	return false
}

// kernelLine is the kernel's command line. Each word but those of the first line and ours saves
// time: no self tests, no waiting for old readers that an emulated machine with few processors has
// long forgotten, no hardware that is not there. The clock is one whose rate is known: that of the
// processor's counter is measured at boot, and on a busy host a guest was seen whose seconds were
// several times too short.
func kernelLine(l *Lab, c GuestConfig) string {
	return strings.Join([]string{
		"console=ttyS0", "quiet", "panic=-1", "clocksource=hpet",
		"mitigations=off", "no_timer_check", "rcupdate.rcu_expedited=1",
		"cryptomgr.notests", "random.trust_cpu=on", "apparmor=0", "audit=0", "nowatchdog",
		"i8042.noaux", "i8042.nokbd", "8250.nr_uarts=1",
		"vmtest.name=" + c.Name, "vmtest.modules=" + l.modules,
	}, " ")
}

// arguments is QEMU's command line. Sockets are inherited: 3 is the agent's, 4 the monitor's, then
// one for each wire.
func (g *Guest) arguments(l *Lab, c GuestConfig) []string {
	accel, cpu := acceleration()
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-name", c.Name,
		"-machine", "q35", "-accel", accel, "-cpu", cpu,
		"-smp", fmt.Sprint(c.CPUs), "-m", fmt.Sprint(c.Memory),
		"-kernel", l.kernel, "-initrd", l.initrd, "-append", kernelLine(l, c),
		"-serial", "stdio",
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,fd=3",
		"-device", "virtserialport,chardev=agent,name=" + portName,
		"-chardev", "socket,id=qmp,fd=4", "-mon", "chardev=qmp,mode=control",
		"-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
		"-virtfs", "local,path=" + strings.ReplaceAll(g.share, ",", ",,") +
			",mount_tag=share,security_model=none,multidevs=remap",
	}
	for i, p := range g.ports {
		args = append(args, "-netdev", fmt.Sprintf("socket,id=%s,fd=%d", p.id, 5+i),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=", p.id, p.mac))
	}
	return args
}
