package diskexport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// lingers is how long what a killed process had open is waited for: the kernel cleans up behind its
// rings after the process is gone.
const lingers = 5 * time.Second

// lockFile keeps other servers away: flock, shared among readers. In modes that need the file for
// themselves it takes a lock on all of its bytes too, of the kind that virtual machine monitors
// look at. Neither keeps out a program that asks nobody. Block devices are opened exclusively
// besides.
func lockFile(f *os.File, n needs) error {
	how := unix.LOCK_SH
	if n.write {
		how = unix.LOCK_EX
	}
	err := lockPatiently(f, func() error {
		return retry(func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
	})
	if err != nil || !n.exclusive {
		return err
	}
	kind := int16(unix.F_RDLCK)
	if n.write {
		kind = unix.F_WRLCK
	}
	return lockPatiently(f, func() error {
		lk := unix.Flock_t{Type: kind, Whence: io.SeekStart}
		return retry(func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk) })
	})
}

// lockPatiently tries for a moment where the holder is dead or not to be seen. One that is alive is
// reason enough to give up.
func lockPatiently(f *os.File, try func() error) error {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := try()
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EACCES) {
			return errs.Wrap("lock", f.Name(), err)
		}
		who, waited := holder(f), time.Since(begin)
		if who == 0 && waited > lingers/10 {
			return errs.Newf(errs.Busy, "lock", f.Name(),
				"somebody else has it open (only readers can share it)")
		}
		if who > 0 && (!errors.Is(unix.Kill(who, 0), unix.ESRCH) || waited > lingers) {
			return errs.Newf(errs.Busy, "lock", f.Name(),
				"process %s has it open (only readers can share it)", nameOf(who))
		}
	}
}

// holder finds who has a lock in the kernel's list; 0 if it does not say.
func holder(f *os.File) int {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	text, _ := os.ReadFile("/proc/locks") // unreadable: the message says less
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for _, line := range strings.Split(string(text), "\n") {
		if w := strings.Fields(line); len(w) > 5 && w[5] == want {
			if pid, _ := strconv.Atoi(w[4]); pid > 0 { // not a number: nobody knows
				return pid
			}
		}
	}
	return 0
}

func nameOf(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(name)))
}
