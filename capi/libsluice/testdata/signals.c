/*
 * signals.c - the handlers of a program work as they do without the library: those that were there
 * before it was used, those that came later, on ordinary stacks, under a storm of them; a fault of
 * the program itself reaches its handler; a pipe that nobody reads kills a program that wants that.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

static volatile sig_atomic_t alarms, users, pipes;
static sigjmp_buf back;

/* It needs more stack than Go's threads and goroutines have. */
static void on_alarm(int sig)
{
	volatile char room[16384];

	memset((void *)room, sig, sizeof room);
	alarms += room[sig] == sig;
}

static void on_user(int sig)
{
	(void)sig;
	users++;
}

static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static void on_fault(int sig)
{
	siglongjmp(back, sig);
}

static void handle(int sig, void (*fn)(int))
{
	struct sigaction a;

	memset(&a, 0, sizeof a);
	a.sa_handler = fn;
	a.sa_flags = SA_RESTART; /* not SA_ONSTACK: few programs ask for it */
	CHECK(sigaction(sig, &a, NULL) == 0);
}

static void storm(sluice_file *file)
{
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	static char buf[65536];
	int i;

	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (i = 0; i < 3000 || alarms < 50; i++)
		CHECK(sluice_pread(file, buf, i % 2 ? sizeof buf : 8, 0) > 0);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void write_to_nobody(void)
{
	int fds[2];

	CHECK(pipe(fds) == 0 && close(fds[0]) == 0);
	CHECK(write(fds[1], "x", 1) == -1 && errno == EPIPE);
	close(fds[1]);
}

int main(int argc, char **argv)
{
	sluice_fs *fs;
	sluice_file *file;
	static char data[65536];
	int status, n;
	pid_t pid;

	if (argc > 1) { /* dies by SIGPIPE, as a program in a pipeline should */
		fs = connect_or_die();
		write_to_nobody();
		return 1;
	}
	handle(SIGALRM, on_alarm);
	fs = connect_or_die();
	file = sluice_open(fs, "/signals", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(file != NULL && sluice_pwrite(file, data, sizeof data, 0) == sizeof data);
	storm(file);
	CHECK(alarms >= 50);

	handle(SIGUSR1, on_user); /* later than the connection, before a file is opened */
	CHECK(sluice_close(file) == 0);
	file = sluice_open(fs, "/signals", O_RDWR, 0);
	CHECK(file != NULL);
	for (n = 0; n < 100; n++) {
		CHECK(kill(getpid(), SIGUSR1) == 0);
		CHECK(sluice_pread(file, data, 8, 0) == 8);
	}
	CHECK(users > 0);

	handle(SIGPIPE, on_pipe);
	write_to_nobody();
	CHECK(pipes == 1);

	handle(SIGSEGV, on_fault);
	if (sigsetjmp(back, 1) == 0) {
		*(volatile int *)16 = 1;
		CHECK(!"a fault was not noticed");
	}
	CHECK(sluice_pread(file, data, 8, 0) == 8);
	CHECK(sluice_close(file) == 0 && sluice_disconnect(fs) == 0);

	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		execl(argv[0], argv[0], "pipe", (char *)NULL);
		_exit(9);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
	printf("ok: %d alarms\n", (int)alarms);
	return 0;
}
