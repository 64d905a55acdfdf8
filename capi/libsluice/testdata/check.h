/* check.h - what the test programs have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sluice.h>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s: errno %d (%s), %s\n", __FILE__, __LINE__, #x,  \
			        errno, strerror(errno), sluice_error());                           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* A call that must fail with an errno and say why. */
#define FAILS(call, no)                                                                            \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK((long)(call) == -1);                                                         \
		CHECK(errno == (no));                                                              \
		CHECK(sluice_error()[0] != 0);                                                     \
	} while (0)

#define NULLS(call, no)                                                                            \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK((call) == NULL);                                                             \
		CHECK(errno == (no));                                                              \
		CHECK(sluice_error()[0] != 0);                                                     \
	} while (0)

static inline sluice_fs *connect_or_die(void)
{
	sluice_fs *fs = sluice_connect(NULL, NULL);

	CHECK(fs != NULL);
	return fs;
}

#endif
