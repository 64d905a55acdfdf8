/*
 * shim.c - the functions of sluice.h: into Go, and back with errno.
 *
 * Signals. Go installs handlers for what its own code may run into (SIGSEGV, SIGBUS, SIGFPE), for
 * SIGPIPE and for SIGURG, and hands on what was not its own. Three things remain:
 *
 *   - Threads of Go must not take signals that are meant for the program: its handlers would run on
 *     stacks that are too small. They begin with the mask of the thread that loads the library; so
 *     all is blocked during that moment (block_signals, unblock_signals).
 *   - A thread of the program inside of a call is on such a stack, too. Its handlers must ask for
 *     the alternate stack, which Go gives to each thread that calls. Go sees to that for handlers
 *     that are there when it is loaded; settle_signals does so for later ones, with each
 *     connection, open and queue.
 *   - Where a program has no handler for SIGPIPE it is killed by it, as it should be: Go would
 *     keep it alive. Only what the library itself writes to sockets must not kill it (on_pipe).
 *
 * fork. A child has none of Go's threads. It is marked, and every call of it fails (enter).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sluice.h"
#include "shim.h"
#include "_cgo_export.h"

static __thread char text[SHIM_TEXT];

/* Calls of this thread that are under way. A handler reads it: so it must not be allocated late. */
static __thread int inside __attribute__((tls_model("initial-exec")));

static volatile sig_atomic_t forked;

/* ---- signals, fork, exit -------------------------------------------------------------------- */

static sigset_t mask_before;
static struct sigaction pipe_before, pipe_of_go;

static void in_child(void) { forked = 1; }

/* Before Go's own constructor, which has no priority. */
__attribute__((constructor(101))) static void block_signals(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask_before);
	sigaction(SIGPIPE, NULL, &pipe_before);
}

/* Behind it: the linker puts Go's object first. */
__attribute__((constructor)) static void unblock_signals(void)
{
	sigaction(SIGPIPE, NULL, &pipe_of_go);
	pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
	pthread_atfork(NULL, NULL, in_child);
}

static void on_pipe(int sig)
{
	sigset_t one;
	struct sigaction dies;

	if (inside > 0 && !forked)
		return; /* a server is gone: the write says so */
	memset(&dies, 0, sizeof dies);
	dies.sa_handler = SIG_DFL;
	sigaction(sig, &dies, NULL);
	raise(sig);
	sigemptyset(&one);
	sigaddset(&one, sig);
	pthread_sigmask(SIG_UNBLOCK, &one, NULL); /* it is delivered here */
}

static void settle_signals(void)
{
	struct sigaction now;
	int sig;

	if (sigaction(SIGPIPE, NULL, &now) == 0 && pipe_before.sa_handler == SIG_DFL &&
	    pipe_before.sa_sigaction != pipe_of_go.sa_sigaction &&
	    now.sa_sigaction == pipe_of_go.sa_sigaction) {
		memset(&now, 0, sizeof now);
		now.sa_handler = on_pipe;
		now.sa_flags = SA_ONSTACK | SA_RESTART;
		sigaction(SIGPIPE, &now, NULL);
	}
	for (sig = 1; sig < NSIG; sig++) {
		if (sigaction(sig, NULL, &now) != 0 || now.sa_handler == SIG_DFL ||
		    now.sa_handler == SIG_IGN || (now.sa_flags & SA_ONSTACK) != 0)
			continue;
		now.sa_flags |= SA_ONSTACK;
		sigaction(sig, &now, NULL);
	}
}

/* As stdio does: who leaves main has closed its files. */
static void at_exit(void)
{
	if (!forked)
		sluiceGoExit();
}

static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static void register_exit(void) { atexit(at_exit); }

/* ---- errors --------------------------------------------------------------------------------- */

static int refuse(int no, const char *why)
{
	strncpy(text, why, sizeof text - 1);
	errno = no;
	return 0;
}

/* enter begins a call; 0: it has failed already. */
static inline int enter(void)
{
	if (__builtin_expect(forked, 0))
		return refuse(ENOTCONN, "this process was forked from one that uses libsluice, and has no "
		                        "connection: call exec first, or connect before anything else does");
	inside++;
	return 1;
}

/* leave ends it: what Go has returned becomes what C expects. */
static inline int64_t leave(int64_t result)
{
	inside--;
	if (__builtin_expect(result < 0, 0)) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

#define TEXT ((uintptr_t)text)
#define P(p) ((uintptr_t)(p))
#define CALL(failed, call) return enter() ? leave(call) : (failed)
#define HANDLE(type, call)                                                                         \
	do {                                                                                       \
		int64_t handle;                                                                    \
		if (!enter())                                                                      \
			return NULL;                                                               \
		handle = leave(call);                                                              \
		return handle == -1 ? NULL : (type *)(uintptr_t)handle;                            \
	} while (0)

const char *sluice_error(void) { return text; }

const char *sluice_version(void) { return sluiceGoVersion(); }

/* ---- buffers -------------------------------------------------------------------------------- */

/*
 * mapped tells whether a buffer is memory at all, by mincore(2). What was found to be is believed
 * for the rest of the clock's tick, 4 ms at most: programs use the same buffer again and again, and
 * a system call costs as much as all else in a small one. Who unmaps a buffer and passes it within
 * that time meets Go's own handler of faults, which makes an error of it, too, in most cases.
 */
#define PAGE 4096ul

static __thread struct {
	uintptr_t first, last; /* pages */
	struct timespec when;
} known;

static int look(uintptr_t first, uintptr_t last)
{
	unsigned char pages[4096];
	uintptr_t at;

	for (at = first; at <= last;) {
		uintptr_t count = (last - at) / PAGE + 1;

		if (count > sizeof pages)
			count = sizeof pages;
		if (mincore((void *)at, count * PAGE, pages) != 0)
			return 0;
		at += count * PAGE;
		if (at < first) /* the end of all memory */
			break;
	}
	return 1;
}

static int mapped(const void *buf, size_t len)
{
	uintptr_t first = P(buf) & ~(PAGE - 1), last = (P(buf) + len - 1) & ~(PAGE - 1);
	struct timespec now;
	int saved = errno;

	if (len == 0)
		return 1;
	if (P(buf) + len - 1 < P(buf))
		return refuse(EFAULT, "a buffer that reaches beyond all memory");
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	if (first >= known.first && last <= known.last && known.when.tv_nsec == now.tv_nsec &&
	    known.when.tv_sec == now.tv_sec)
		return 1;
	if (buf == NULL || !look(first, last)) {
		known.first = 1;
		known.last = 0;
		return refuse(EFAULT, "a buffer that is not mapped, or not all of it");
	}
	known.first = first;
	known.last = last;
	known.when = now;
	errno = saved;
	return 1;
}

/* ---- connections and memory ----------------------------------------------------------------- */

sluice_fs *sluice_connect(const char *where, const struct sluice_options *options)
{
	const char *env[SHIM_ENV_COUNT];
	int64_t handle;

	if (!enter())
		return NULL;
	env[SHIM_ENV_URL] = getenv("SLUICE_URL");
	env[SHIM_ENV_CREDENTIAL] = getenv("SLUICE_CREDENTIAL");
	env[SHIM_ENV_SECRET] = getenv("SLUICE_SECRET_FILE");
	env[SHIM_ENV_PROVIDERS] = getenv("SLUICE_PROVIDERS");
	env[SHIM_ENV_PROGRESS] = getenv("SLUICE_PROGRESS");
	settle_signals();
	handle = leave(sluiceGoConnect(P(where), P(options), P(env), TEXT));
	if (handle == -1)
		return NULL;
	pthread_once(&exit_once, register_exit);
	return (sluice_fs *)(uintptr_t)handle;
}

int sluice_disconnect(sluice_fs *fs) { CALL(-1, sluiceGoDisconnect(P(fs), TEXT)); }

void *sluice_alloc(sluice_fs *fs, size_t len) { HANDLE(void, sluiceGoAlloc(P(fs), len, TEXT)); }

int sluice_free(void *memory) { CALL(-1, sluiceGoFree(P(memory), TEXT)); }

int sluice_is_shared(const void *memory) { CALL(-1, sluiceGoIsShared(P(memory), TEXT)); }

/* ---- files ---------------------------------------------------------------------------------- */

static sluice_file *open_file(sluice_fs *fs, const char *path, int flags, mode_t mode,
                              const struct sluice_layout *layout)
{
	HANDLE(sluice_file, sluiceGoOpen(P(fs), P(path), flags, mode, P(layout), TEXT));
}

sluice_file *sluice_open(sluice_fs *fs, const char *path, int flags, mode_t mode)
{
	settle_signals();
	return open_file(fs, path, flags, mode, NULL);
}

sluice_file *sluice_create(sluice_fs *fs, const char *path, int flags, mode_t mode,
                           const struct sluice_layout *layout)
{
	settle_signals();
	return open_file(fs, path, flags | 0100 /* O_CREAT */, mode, layout);
}

int sluice_close(sluice_file *file) { CALL(-1, sluiceGoClose(P(file), TEXT)); }

int64_t shim_pread(uintptr_t file, uintptr_t buf, uint64_t len, int64_t off)
{
	CALL(-1, sluiceGoPread(file, buf, len, off, TEXT));
}

int64_t shim_pwrite(uintptr_t file, uintptr_t buf, uint64_t len, int64_t off)
{
	CALL(-1, sluiceGoPwrite(file, buf, len, off, TEXT));
}

int64_t shim_append(uintptr_t file, uintptr_t buf, uint64_t len)
{
	CALL(-1, sluiceGoAppend(file, buf, len, TEXT));
}

ssize_t sluice_pread(sluice_file *file, void *buf, size_t len, int64_t off)
{
	return mapped(buf, len) ? shim_pread(P(file), P(buf), len, off) : -1;
}

ssize_t sluice_pwrite(sluice_file *file, const void *buf, size_t len, int64_t off)
{
	return mapped(buf, len) ? shim_pwrite(P(file), P(buf), len, off) : -1;
}

ssize_t sluice_preadv(sluice_file *file, const struct iovec *iov, int count, int64_t off)
{
	CALL(-1, sluiceGoPreadv(P(file), P(iov), count, off, TEXT));
}

ssize_t sluice_pwritev(sluice_file *file, const struct iovec *iov, int count, int64_t off)
{
	CALL(-1, sluiceGoPwritev(P(file), P(iov), count, off, TEXT));
}

int64_t sluice_append(sluice_file *file, const void *buf, size_t len)
{
	return mapped(buf, len) ? shim_append(P(file), P(buf), len) : -1;
}

int sluice_sync(sluice_file *file) { CALL(-1, sluiceGoSync(P(file), TEXT)); }

int sluice_sync_all(sluice_fs *fs) { CALL(-1, sluiceGoSyncAll(P(fs), TEXT)); }

int sluice_ftruncate(sluice_file *file, int64_t size)
{
	CALL(-1, sluiceGoFtruncate(P(file), size, TEXT));
}

int sluice_reserve(sluice_file *file, int64_t off, int64_t len)
{
	CALL(-1, sluiceGoReserve(P(file), off, len, TEXT));
}

int sluice_lock(sluice_file *file, int64_t off, int64_t len, int how)
{
	CALL(-1, sluiceGoLock(P(file), off, len, how, TEXT));
}

int sluice_unlock(sluice_file *file, int64_t off, int64_t len)
{
	CALL(-1, sluiceGoUnlock(P(file), off, len, TEXT));
}

/* ---- list I/O and queues -------------------------------------------------------------------- */

ssize_t sluice_read_list(sluice_file *file, const struct sluice_memory *memory,
                         const struct sluice_access *access, const struct sluice_hints *hints)
{
	CALL(-1, sluiceGoReadList(P(file), P(memory), P(access), P(hints), TEXT));
}

ssize_t sluice_write_list(sluice_file *file, const struct sluice_memory *memory,
                          const struct sluice_access *access, const struct sluice_hints *hints)
{
	CALL(-1, sluiceGoWriteList(P(file), P(memory), P(access), P(hints), TEXT));
}

sluice_queue *sluice_queue_create(sluice_fs *fs, unsigned depth)
{
	settle_signals();
	HANDLE(sluice_queue, sluiceGoQueueCreate(P(fs), depth, TEXT));
}

int sluice_queue_fd(sluice_queue *queue) { CALL(-1, sluiceGoQueueFd(P(queue), TEXT)); }

int sluice_submit(sluice_queue *queue, const struct sluice_request *requests, unsigned count)
{
	CALL(-1, sluiceGoSubmit(P(queue), P(requests), count, TEXT));
}

int sluice_complete(sluice_queue *queue, struct sluice_completion *completions, unsigned max,
                    unsigned min, int timeout_ms)
{
	CALL(-1, sluiceGoComplete(P(queue), P(completions), max, min, timeout_ms, TEXT));
}

int sluice_queue_destroy(sluice_queue *queue) { CALL(-1, sluiceGoQueueDestroy(P(queue), TEXT)); }

/* ---- arrays --------------------------------------------------------------------------------- */

sluice_array *sluice_array_open(sluice_file *file)
{
	HANDLE(sluice_array, sluiceGoArrayOpen(P(file), TEXT));
}

sluice_array *sluice_array_create(sluice_file *file, const char *dtype, unsigned axes,
                                  const int64_t *shape, unsigned flags)
{
	HANDLE(sluice_array, sluiceGoArrayCreate(P(file), P(dtype), axes, P(shape), flags, TEXT));
}

sluice_array *sluice_array_raw(sluice_file *file, int64_t off, const char *dtype, unsigned axes,
                               const int64_t *shape, unsigned flags)
{
	HANDLE(sluice_array, sluiceGoArrayRaw(P(file), off, P(dtype), axes, P(shape), flags, TEXT));
}

int sluice_array_close(sluice_array *array) { CALL(-1, sluiceGoArrayClose(P(array), TEXT)); }

int sluice_array_sync(sluice_array *array) { CALL(-1, sluiceGoArraySync(P(array), TEXT)); }

int sluice_array_info(sluice_array *array, struct sluice_array_info *info)
{
	CALL(-1, sluiceGoArrayInfo(P(array), P(info), TEXT));
}

ssize_t sluice_array_read(sluice_array *array, const struct sluice_slice *slices, void *memory,
                          const int64_t *strides)
{
	CALL(-1, sluiceGoArrayRead(P(array), P(slices), P(memory), P(strides), TEXT));
}

ssize_t sluice_array_write(sluice_array *array, const struct sluice_slice *slices,
                           const void *memory, const int64_t *strides)
{
	CALL(-1, sluiceGoArrayWrite(P(array), P(slices), P(memory), P(strides), TEXT));
}

int sluice_array_grid(sluice_array *array, const struct sluice_tiling *tiling, int64_t *grid)
{
	CALL(-1, sluiceGoArrayGrid(P(array), P(tiling), P(grid), TEXT));
}

ssize_t sluice_array_tile_box(sluice_array *array, const struct sluice_tiling *tiling,
                              const int64_t *at, int64_t *low, int64_t *high)
{
	CALL(-1, sluiceGoArrayTileBox(P(array), P(tiling), P(at), P(low), P(high), TEXT));
}

ssize_t sluice_array_read_tile(sluice_array *array, const struct sluice_tiling *tiling,
                               const int64_t *at, void *memory, size_t len)
{
	CALL(-1, sluiceGoArrayReadTile(P(array), P(tiling), P(at), P(memory), len, TEXT));
}

ssize_t sluice_array_write_tile(sluice_array *array, const struct sluice_tiling *tiling,
                                const int64_t *at, const void *memory, size_t len)
{
	CALL(-1, sluiceGoArrayWriteTile(P(array), P(tiling), P(at), P(memory), len, TEXT));
}

/* ---- names and attributes ------------------------------------------------------------------- */

int sluice_stat(sluice_fs *fs, const char *path, struct sluice_stat *st)
{
	CALL(-1, sluiceGoStat(P(fs), P(path), P(st), 0, TEXT));
}

int sluice_lstat(sluice_fs *fs, const char *path, struct sluice_stat *st)
{
	CALL(-1, sluiceGoStat(P(fs), P(path), P(st), 1, TEXT));
}

int sluice_fstat(sluice_file *file, struct sluice_stat *st)
{
	CALL(-1, sluiceGoFstat(P(file), P(st), TEXT));
}

int sluice_statfs(sluice_fs *fs, const char *path, struct sluice_statfs *st)
{
	CALL(-1, sluiceGoStatfs(P(fs), P(path), P(st), TEXT));
}

int sluice_get_layout(sluice_fs *fs, const char *path, struct sluice_layout *layout)
{
	CALL(-1, sluiceGoGetLayout(P(fs), P(path), P(layout), TEXT));
}

int sluice_flayout(sluice_file *file, struct sluice_layout *layout)
{
	CALL(-1, sluiceGoFlayout(P(file), P(layout), TEXT));
}

int sluice_set_layout(sluice_fs *fs, const char *path, const struct sluice_layout *layout)
{
	CALL(-1, sluiceGoSetLayout(P(fs), P(path), P(layout), TEXT));
}

int sluice_rename(sluice_fs *fs, const char *from, const char *to, int flags)
{
	CALL(-1, sluiceGoRename(P(fs), P(from), P(to), flags, TEXT));
}

int sluice_truncate(sluice_fs *fs, const char *path, int64_t size)
{
	CALL(-1, sluiceGoTruncate(P(fs), P(path), size, TEXT));
}

int sluice_unlink(sluice_fs *fs, const char *path) { CALL(-1, sluiceGoUnlink(P(fs), P(path), TEXT)); }

int sluice_rmdir(sluice_fs *fs, const char *path) { CALL(-1, sluiceGoRmdir(P(fs), P(path), TEXT)); }

int sluice_mkdir(sluice_fs *fs, const char *path, mode_t mode)
{
	CALL(-1, sluiceGoMkdir(P(fs), P(path), mode, 0, TEXT));
}

int sluice_mkdir_all(sluice_fs *fs, const char *path, mode_t mode)
{
	CALL(-1, sluiceGoMkdir(P(fs), P(path), mode, 1, TEXT));
}

int sluice_remove_all(sluice_fs *fs, const char *path)
{
	CALL(-1, sluiceGoRemoveAll(P(fs), P(path), TEXT));
}

int sluice_link(sluice_fs *fs, const char *path, const char *name)
{
	CALL(-1, sluiceGoLink(P(fs), P(path), P(name), TEXT));
}

int sluice_symlink(sluice_fs *fs, const char *target, const char *path)
{
	CALL(-1, sluiceGoSymlink(P(fs), P(target), P(path), TEXT));
}

ssize_t sluice_readlink(sluice_fs *fs, const char *path, char *buf, size_t len)
{
	CALL(-1, sluiceGoReadlink(P(fs), P(path), P(buf), len, TEXT));
}

int sluice_chmod(sluice_fs *fs, const char *path, mode_t mode)
{
	CALL(-1, sluiceGoChmod(P(fs), P(path), mode, TEXT));
}

int sluice_chown(sluice_fs *fs, const char *path, int64_t uid, int64_t gid)
{
	CALL(-1, sluiceGoChown(P(fs), P(path), uid, gid, TEXT));
}

int sluice_utimes(sluice_fs *fs, const char *path, const struct sluice_time *atime,
                  const struct sluice_time *mtime)
{
	CALL(-1, sluiceGoUtimes(P(fs), P(path), P(atime), P(mtime), TEXT));
}

sluice_dir *sluice_opendir(sluice_fs *fs, const char *path)
{
	HANDLE(sluice_dir, sluiceGoOpendir(P(fs), P(path), TEXT));
}

int sluice_readdir(sluice_dir *dir, struct sluice_dirent *entry)
{
	CALL(-1, sluiceGoReaddir(P(dir), P(entry), TEXT));
}

int sluice_closedir(sluice_dir *dir) { CALL(-1, sluiceGoClosedir(P(dir), TEXT)); }

/* ---- what Go believes of these structures --------------------------------------------------- */

#define SAME(type, field, at) \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field)
SAME(sluice_options, credential, 8);
SAME(sluice_options, name, 40);
SAME(sluice_options, buffers, 48);
SAME(sluice_options, wait_ms, 72);
SAME(sluice_layout, unit, 8);
SAME(sluice_layout, pool, 16);
SAME(sluice_access, u, 8);
SAME(sluice_access, block, 24);
SAME(sluice_memory, access, 8);
SAME(sluice_hints, parents, 8);
SAME(sluice_request, file, 8);
SAME(sluice_request, off, 40);
SAME(sluice_request, hints, 64);
SAME(sluice_completion, error, 24);
SAME(sluice_stat, mode, 32);
SAME(sluice_stat, atime, 56);
SAME(sluice_dirent, name, 104);
