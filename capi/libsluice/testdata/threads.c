/* threads.c - many threads on the same files, one of which closes them now and then. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 200, BLOCK = 16384 };

static sluice_fs *fs;
static _Atomic(sluice_file *) file;
static atomic_int refused, done;

static void *work(void *arg)
{
	long id = (long)arg;
	char *mine = malloc(BLOCK), *back = malloc(BLOCK);
	int i;

	memset(mine, (int)id + 1, BLOCK);
	for (i = 0; i < ROUNDS; i++) {
		sluice_file *f = file;
		ssize_t n = sluice_pwrite(f, mine, BLOCK, id * BLOCK);

		if (n == BLOCK)
			n = sluice_pread(f, back, BLOCK, id * BLOCK);
		if (n == BLOCK) {
			CHECK(memcmp(mine, back, BLOCK) == 0);
			done++;
			continue;
		}
		CHECK(n == -1 && errno == EBADF && sluice_error()[0] != 0);
		refused++;
	}
	free(mine);
	free(back);
	return NULL;
}

static void *own_text(void *arg)
{
	struct sluice_stat st;
	char want[64];
	int i;

	snprintf(want, sizeof want, "/nothing-%ld", (long)arg);
	for (i = 0; i < ROUNDS; i++) {
		FAILS(sluice_stat(fs, want, &st), ENOENT);
		CHECK(strstr(sluice_error(), want) != NULL); /* not another thread's */
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	long i;

	fs = connect_or_die();
	file = sluice_open(fs, "/threads", O_RDWR | O_CREAT | O_TRUNC, 0644);
	CHECK(file != NULL);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, work, (void *)i) == 0);
	for (i = 0; i < 20; i++) {
		sluice_file *old = file;

		file = sluice_open(fs, "/threads", O_RDWR, 0);
		CHECK(file != NULL && sluice_close(old) == 0);
	}
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, own_text, (void *)i) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(done > 0);

	/* The connection goes while they work. */
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, work, (void *)i) == 0);
	while (done < THREADS * ROUNDS + 50 && refused < THREADS * ROUNDS)
		usleep(100);
	errno = 0;
	if (sluice_disconnect(fs) != 0)
		CHECK(errno != EBADF);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	printf("ok: %d done, %d refused\n", done, refused);
	return 0;
}
