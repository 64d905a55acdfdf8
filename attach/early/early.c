// What is done before Go's runtime begins: see doc.go.

#define _GNU_SOURCE
#include "early.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

// Where the child writes one byte, the parent's exit code. -1: nobody waits.
static int parent_fd = -1;

int early_parent(void) { return parent_fd; }

// The signals that end programs. The parent passes them on, and ends as its child does.
static const int passed[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
enum { passed_count = sizeof passed / sizeof passed[0] };

static volatile pid_t child;

static void pass_on(int sig)
{
	int e = errno;
	kill(child, sig);
	errno = e;
}

// What the command line says. It is read from the kernel: not every C library gives it to
// constructors.
struct command {
	int attach; // it is `attach`
	int alone;  // with a flag by which the process itself is the one that is wanted
};

static struct command read_command(void)
{
	static char text[16384]; // more than that has no effect here
	struct command c = {0, 0};
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return c;
	ssize_t len = 0, n;
	while (len < (ssize_t)sizeof text - 1 &&
	       (n = read(fd, text + len, sizeof text - 1 - len)) > 0)
		len += n;
	close(fd);
	text[len] = 0;
	// A command line that does not fit may end with such a flag.
	c.alone = len == sizeof text - 1;
	int i = 0;
	for (char *arg = text; arg < text + len; arg += strlen(arg) + 1, i++) {
		if (i == 1)
			c.attach = strcmp(arg, "attach") == 0;
		else if (i > 1 && arg[0] == '-' && (strstr(arg, "serve") || strstr(arg, "standby") ||
		                                    strstr(arg, "foreground")))
			c.alone = 1;
	}
	return c;
}

// wait_for is all that the parent does.
static void wait_for(int fd)
{
	unsigned char code;
	ssize_t n;
	while ((n = read(fd, &code, 1)) < 0 && errno == EINTR)
		;
	if (n == 1)
		_exit(code);
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		kill(getpid(), WTERMSIG(status));
		_exit(128 + WTERMSIG(status));
	}
	_exit(WEXITSTATUS(status));
}

__attribute__((constructor)) static void early(void)
{
	struct command c = read_command();
	int fds[2];
	if (!c.attach)
		return;
	// Who may not do that is told by Go's side, which looks whether it was done.
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	if (c.alone || pipe2(fds, O_CLOEXEC) != 0)
		return;
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before); // none is lost between fork and sigaction
	child = fork();
	if (child > 0) {
		struct sigaction act = {.sa_handler = pass_on};
		for (int i = 0; i < passed_count; i++)
			sigaction(passed[i], &act, 0);
		sigprocmask(SIG_SETMASK, &before, 0);
		close(fds[1]);
		wait_for(fds[0]);
	}
	sigprocmask(SIG_SETMASK, &before, 0);
	close(fds[0]);
	if (child == 0)
		parent_fd = fds[1];
	else
		close(fds[1]);
}
