package systest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
)

// clockEnv makes a process of this test binary one that runs a program, and all that it starts,
// by another wall clock: so many seconds ahead.
const clockEnv = "SLUICE_SYSTEST_CLOCK"

// runByClock runs a program by another clock and returns its exit code. It traces the program and
// its children: each time one of them begins another program, before its first instruction, the
// function that tells it the time is replaced (see setClock). Name spaces of time do not shift the
// wall clock, and nothing can be preloaded into programs that are linked statically.
func runByClock(seconds int32, args []string) (int, error) {
	runtime.LockOSThread() // the kernel answers the thread that traces, and no other
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(),
		Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return 0, err
	}
	forward(pid)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return 0, fmt.Errorf("the program does not begin: %v %v", status, err)
	}
	// They end with this process: nobody else would let them go on.
	const exitKill = 0x100000
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACECLONE|syscall.PTRACE_O_TRACEFORK|
		syscall.PTRACE_O_TRACEVFORK|syscall.PTRACE_O_TRACEEXEC|exitKill); err != nil {
		return 0, err
	}
	if err := patchClock(pid, seconds); err != nil {
		return 0, err
	}
	if err := syscall.PtraceCont(pid, 0); err != nil {
		return 0, err
	}
	return follow(pid, seconds)
}

// forward hands signals that ask this process to end on to the program.
func forward(pid int) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		for s := range asked {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
}

// follow lets everything that is traced go on until the first program has ended.
func follow(first int, seconds int32) (int, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WALL, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return 0, err
		case pid == first && status.Exited():
			return status.ExitStatus(), nil
		case pid == first && status.Signaled():
			return 128 + int(status.Signal()), nil
		case !status.Stopped():
			continue
		}
		pass := status.StopSignal()
		if pass == syscall.SIGTRAP || pass == syscall.SIGSTOP {
			pass = 0 // events, and the first stop of what is new
		}
		if status.TrapCause() == syscall.PTRACE_EVENT_EXEC {
			if err := patchClock(pid, seconds); err != nil {
				return 0, err
			}
		}
		_ = syscall.PtraceCont(pid, int(pass)) // it may have been killed
	}
}

// clockMain is the process that clockEnv makes.
func clockMain(text string, args []string) {
	seconds, err := strconv.ParseInt(text, 10, 32)
	code := 0
	if err == nil {
		_ = os.Unsetenv(clockEnv)
		code, err = runByClock(int32(seconds), args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "another clock:", err)
		code = 125
	}
	os.Exit(code)
}
