/* forks.c - fork and exec in a program that uses the library; a child that only forks. */
#include <sys/wait.h>

#include "check.h"

static int ended(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	sluice_fs *fs;
	sluice_file *file;
	char page[4096] = "parent";
	pid_t pid;
	int i;

	if (argc > 1) { /* the child that was executed has a connection of its own */
		fs = connect_or_die();
		file = sluice_open(fs, "/forks", O_RDONLY, 0);
		CHECK(file != NULL && sluice_pread(file, page, sizeof page, 0) == sizeof page);
		CHECK(strcmp(page, "parent") == 0);
		return 7; /* without closing anything */
	}
	fs = connect_or_die();
	file = sluice_open(fs, "/forks", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(file != NULL && sluice_pwrite(file, page, sizeof page, 0) == sizeof page);
	for (i = 0; i < 5; i++) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			FAILS(sluice_pread(file, page, sizeof page, 0), ENOTCONN);
			FAILS(sluice_close(file), ENOTCONN);
			FAILS(sluice_disconnect(fs), ENOTCONN);
			NULLS(sluice_connect(NULL, NULL), ENOTCONN);
			exit(3); /* through what is done at the end of a program */
		}
		CHECK(ended(pid) == 3);
		CHECK(sluice_pread(file, page, sizeof page, 0) == sizeof page);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			execl(argv[0], argv[0], "child", (char *)NULL);
			_exit(9);
		}
		CHECK(ended(pid) == 7);
		CHECK(sluice_pwrite(file, page, sizeof page, 0) == sizeof page);
	}
	CHECK(system("exit 5") >> 8 == 5);
	CHECK(sluice_close(file) == 0);
	CHECK(sluice_disconnect(fs) == 0);
	puts("ok");
	return 0;
}
