/*
 * sluice.h - the sluice file system for programs in C and in languages that call C.
 *
 *   cc prog.c $(pkg-config --cflags --libs libsluice)
 *
 * Errors. A function that returns a pointer returns NULL, every other one -1, and errno says why;
 * sluice_error() is the whole story in words, of the last call of this thread that failed. Results
 * of asynchronous requests are counts of bytes or negative errno values.
 *
 * Handles. sluice_fs, sluice_file, sluice_dir, sluice_queue and sluice_array are names of objects, never addresses
 * of memory. They are not followed: a handle that was closed, or that never was one, is EBADF.
 *
 * Threads. Every function may be called by any thread at any time, on the same objects too. A close
 * waits for nobody: calls under way on what is closed end with EBADF or succeed.
 *
 * fork. fork and exec work as usual. A child that goes on without exec has no connection to
 * anything: each call of it fails with ENOTCONN, and what its parent has is not touched.
 *
 * Memory. A buffer belongs to the library from the call until it returns, or, for an asynchronous
 * request, until its completion was taken. Memory that is not mapped is EFAULT, as with read(2).
 *
 * Structures that begin with a field "size" are told their size by the caller: .size = sizeof x.
 * What is not set must be zero.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A library of the same major version has all of it. */
#define SLUICE_VERSION_MAJOR 1
#define SLUICE_VERSION_MINOR 0

typedef struct sluice_fs sluice_fs;       /* a connection to a cluster */
typedef struct sluice_file sluice_file;   /* an open file */
typedef struct sluice_dir sluice_dir;     /* a directory that is being listed */
typedef struct sluice_queue sluice_queue; /* asynchronous requests and their completions */
typedef struct sluice_array sluice_array; /* an N-dimensional array in a file */

/* The library's version as text, like "1.0 (build v0.4-12-gabcdef)"; it is never freed. */
const char *sluice_version(void);

/* Why the last failed call of this thread has failed; "" if none has. It lasts until the next. */
const char *sluice_error(void);

/* ---- connections ---------------------------------------------------------------------------- */

enum { SLUICE_TRUST_LOCAL = 1 }; /* believe servers of this host that prove nothing */

/* All fields may be zero: then it is as with the commands of sluice. */
struct sluice_options {
	uint32_t size;          /* sizeof(struct sluice_options) */
	uint32_t flags;         /* SLUICE_TRUST_LOCAL */
	const char *credential; /* file that `sluice join` has made; NULL: $SLUICE_CREDENTIAL, ... */
	const char *secret;     /* file of the cluster's secret; NULL: $SLUICE_SECRET_FILE, ... */
	const char *providers;  /* "shm,verbs,tcp"; NULL: $SLUICE_PROVIDERS, else all */
	const char *progress;   /* "any", "poll" or "thread"; NULL: $SLUICE_PROGRESS, else any */
	const char *name;       /* of the session, in `sluice status`; NULL: host and pid */
	uint64_t buffers;       /* bytes of memory that servers are let into; 0: 32 MiB */
	uint64_t retain;        /* bytes of writes that are kept until they are synced; 0: 96 MiB */
	uint64_t pinned;        /* bytes of the program's memory that are registered; 0: 256 MiB */
	uint32_t wait_ms;       /* how long a call waits for servers that are away; 0: 60 s */
	uint32_t reserved;
};

/*
 * sluice_connect finds a cluster: "sluice://HOST:PORT[/dir]", where paths then begin at dir, or a
 * cluster's folder, the one of `sluice up --dir`. NULL or "": $SLUICE_URL, else what the credential
 * says, else sluice://127.0.0.1:9400. options may be NULL.
 */
sluice_fs *sluice_connect(const char *where, const struct sluice_options *options);

/*
 * sluice_disconnect closes every file, queue, array and directory of the connection, frees its memory,
 * and makes all that was written durable; -1 if some of it could not be. The connection is gone in
 * either case. A program that ends by exit() or by returning from main disconnects by itself.
 */
int sluice_disconnect(sluice_fs *fs);

/* ---- memory --------------------------------------------------------------------------------- */

/*
 * sluice_alloc lends memory that servers of this host, and RDMA devices, move data into and out of
 * by themselves: it is read and written without copies in this process. It is aligned to 4096 bytes,
 * its content is undefined. Any memory is fine for all other functions; this is the fastest.
 * More than 1 MiB is mapped for the caller: allocate once, use it often. sluice_free of what is not
 * lent, or not any more, is EINVAL. sluice_disconnect frees what is left.
 */
void *sluice_alloc(sluice_fs *fs, size_t len);
int sluice_free(void *memory);

/* 1 if servers reach memory of sluice_alloc by themselves; 0 if there was only ordinary memory. */
int sluice_is_shared(const void *memory);

/* ---- files ---------------------------------------------------------------------------------- */

/* How a file is striped. On creation 0 means the directory's or the cluster's choice. */
struct sluice_layout {
	uint32_t size;  /* sizeof(struct sluice_layout) */
	uint32_t width; /* over how many servers; SLUICE_WIDTH_ALL: over all */
	uint64_t unit;  /* bytes in a row on one server: 64 KiB to 16 MiB, a power of two */
	char pool[64];  /* of servers that it lies on; "": any */
};
#define SLUICE_WIDTH_ALL 65535

/*
 * sluice_open opens a file by the flags of open(2): O_RDONLY, O_WRONLY or O_RDWR; O_CREAT, O_EXCL,
 * O_TRUNC, O_APPEND (every write goes to the end, and its offset is ignored), O_SYNC, O_DIRECT
 * (past the servers' caches). Others that mean nothing here are ignored. mode counts with O_CREAT;
 * the umask is not applied.
 */
sluice_file *sluice_open(sluice_fs *fs, const char *path, int flags, mode_t mode);

/* sluice_create is sluice_open with O_CREAT that says how a file which it makes is striped. layout
 * may be NULL. A file that is there keeps its own. */
sluice_file *sluice_create(sluice_fs *fs, const char *path, int flags, mode_t mode,
                           const struct sluice_layout *layout);

/*
 * sluice_close ends a handle, and tells its file's length to everybody. It makes nothing durable:
 * sluice_sync does. -1: something that was written is lost; the handle is gone in either case.
 */
int sluice_close(sluice_file *file);

/* Reads return less than was asked for only at the end of the file, 0 behind it. Writes write all,
 * or as much as a quota leaves room for. */
ssize_t sluice_pread(sluice_file *file, void *buf, size_t len, int64_t off);
ssize_t sluice_pwrite(sluice_file *file, const void *buf, size_t len, int64_t off);
ssize_t sluice_preadv(sluice_file *file, const struct iovec *iov, int count, int64_t off);
ssize_t sluice_pwritev(sluice_file *file, const struct iovec *iov, int count, int64_t off);

/* sluice_append writes at the end, exactly, among any number of clients, and tells where that was. */
int64_t sluice_append(sluice_file *file, const void *buf, size_t len);

/* sluice_sync returns when all that was acknowledged before, of this file, is on disks. */
int sluice_sync(sluice_file *file);

/* sluice_sync_all is sluice_sync of all files of the connection, and of names. */
int sluice_sync_all(sluice_fs *fs);

int sluice_ftruncate(sluice_file *file, int64_t size);

/* sluice_reserve gives a range its space: no write to it fails for want of space. It makes the file
 * longer where that is necessary. */
int sluice_reserve(sluice_file *file, int64_t off, int64_t len);

/* Locks between clients, and with programs on mounts (POSIX record locks). Their owner is the
 * handle; closing it releases them. len 0: to the end of the file, wherever that will be. */
enum {
	SLUICE_LOCK_SHARED = 0,
	SLUICE_LOCK_EXCLUSIVE = 1,
	SLUICE_LOCK_TRY = 2 /* or'ed: EAGAIN rather than wait */
};
int sluice_lock(sluice_file *file, int64_t off, int64_t len, int how);
int sluice_unlock(sluice_file *file, int64_t off, int64_t len);

/* ---- list I/O ------------------------------------------------------------------------------- */

/* A run of bytes. */
struct sluice_piece {
	int64_t off;
	int64_t len;
};

/* Repeats what is inside of it count times, stride bytes apart. */
struct sluice_dim {
	int64_t count;
	int64_t stride;
};

/*
 * Which bytes are meant: a list of pieces, or a nested vector. Its bytes form a stream, in the order
 * of the list, or of the vector: dims[0] is the outermost repetition, block bytes lie innermost,
 * and everything begins at off.
 *
 *   off                    dims = {{2, 100}, {3, 10}}, block = 4
 *   |xxxx......xxxx......xxxx..........(100)|xxxx......xxxx......xxxx
 *
 * Offsets, lengths, counts and strides must not be negative (EINVAL). Pieces of the file may
 * overlap: a byte that is written twice is one of the two. Pieces of memory that is read into must
 * not (EINVAL). A list has at most 4194304 pieces, a vector as
 * many when it is expanded; more is E2BIG. A subarray of many rows is a vector of a few dims,
 * which costs the same whatever its number of rows.
 */
enum { SLUICE_LIST = 0, SLUICE_VECTOR = 1 };
struct sluice_access {
	uint32_t kind;  /* SLUICE_LIST or SLUICE_VECTOR */
	uint32_t count; /* of pieces, or of dims (8 at most) */
	union {
		const struct sluice_piece *pieces; /* SLUICE_LIST */
		const struct sluice_dim *dims;     /* SLUICE_VECTOR */
	} u;
	int64_t off;   /* SLUICE_VECTOR; added to the offset of every piece of a list */
	int64_t block; /* SLUICE_VECTOR */
};

/* Memory: offsets of the access count from base. */
struct sluice_memory {
	void *base;
	struct sluice_access access;
};

/* An allocation that pieces of memory lie in, and how much of it may be pinned (registered with a
 * device), from the first byte that is meant on: what lies behind that is copied. 0: all of it. */
struct sluice_parent {
	void *base;
	uint64_t len;
	uint64_t pin;
};

/*
 * Hints: in which allocations the pieces of memory lie, so that one registration serves all pieces
 * of a parent. They change nothing but the speed, on devices that move registered memory only. A
 * parent that is not all mapped is EFAULT.
 */
struct sluice_hints {
	uint32_t size;  /* sizeof(struct sluice_hints) */
	uint32_t count; /* of parents */
	const struct sluice_parent *parents;
};

/*
 * List I/O in one call: the stream of file to the stream of memory, or the other way round, which
 * must be equally long (EINVAL). Each server is asked once, whatever the number of pieces. hints may
 * be NULL. A read fills with zeroes what lies behind the end of the file, and returns how many
 * bytes of the stream come before the first of these. A write is all or nothing where a quota
 * leaves no room.
 */
ssize_t sluice_read_list(sluice_file *file, const struct sluice_memory *memory,
                         const struct sluice_access *access, const struct sluice_hints *hints);
ssize_t sluice_write_list(sluice_file *file, const struct sluice_memory *memory,
                          const struct sluice_access *access, const struct sluice_hints *hints);

/* ---- asynchronous requests ------------------------------------------------------------------ */

enum {
	SLUICE_READ = 1,       /* buf, len, off */
	SLUICE_WRITE = 2,      /* buf, len, off */
	SLUICE_READ_LIST = 3,  /* memory, access, hints */
	SLUICE_WRITE_LIST = 4, /* memory, access, hints */
	SLUICE_SYNC = 5        /* what was acknowledged before the submission */
};

/* What is pointed to, but the data, is copied by sluice_submit. */
struct sluice_request {
	uint32_t size; /* sizeof(struct sluice_request) */
	uint32_t op;
	sluice_file *file; /* of the queue's connection */
	uint64_t tag;      /* the completion has it, too */
	void *buf;
	uint64_t len;
	int64_t off;
	const struct sluice_memory *memory;
	const struct sluice_access *access;
	const struct sluice_hints *hints;
};

struct sluice_completion {
	uint64_t tag;
	int64_t result; /* bytes, as the call would return, or a negative errno */
	uint32_t op;
	uint32_t reserved;
	char error[104]; /* the story of a failed one; "" otherwise */
};

/*
 * A queue has at most depth requests (1 to 65536) that are under way or whose completion was not
 * taken. Requests are independent of each other: they run, and complete, in any order.
 */
sluice_queue *sluice_queue_create(sluice_fs *fs, unsigned depth);

/* The queue's eventfd, for poll, select and epoll: readable while there are completions. It belongs
 * to the queue: do not read, write or close it. */
int sluice_queue_fd(sluice_queue *queue);

/*
 * sluice_submit starts requests and returns how many of them: less than count where the queue is
 * full (0 and EAGAIN never: a full queue returns 0). A request that makes no sense ends the call:
 * those before it are started; if it is the first, -1.
 */
int sluice_submit(sluice_queue *queue, const struct sluice_request *requests, unsigned count);

/*
 * sluice_complete takes up to max completions. It waits until there are at least min (which may be
 * 0), but no longer than timeout_ms (-1: for ever, or until nothing is under way any more), and
 * returns how many it took.
 */
int sluice_complete(sluice_queue *queue, struct sluice_completion *completions, unsigned max,
                    unsigned min, int timeout_ms);

/* sluice_queue_destroy waits for what is under way, forgets its completions, and ends the queue. */
int sluice_queue_destroy(sluice_queue *queue);

/* ---- arrays --------------------------------------------------------------------------------- */

/*
 * An array is a file, NumPy's .npy or raw, seen as elements along axes. What is asked for is
 * described, not copied together: a part of a million rows is one request to each server. Elements
 * are moved as they are, bytes in the other order too. The file stays the program's, and must be
 * open as long as the array is used; the array may be used by several threads.
 *
 * dtype is NumPy's name of what an element is: "<f8", "float32", ">i4", "S16", or a structure,
 * "[('x', '<f4'), ('v', '<f8', (3,))]". EINVAL: it is none, a length is negative, or there are more
 * than 64 axes; EFBIG: more elements than a file has room for.
 */
enum { SLUICE_AXES = 64 };
enum { SLUICE_FORTRAN = 1 }; /* of an array: the first axis is the fastest. Else the last */

/* sluice_array_open reads the header of a .npy file. EBADMSG, EINVAL: it is none. */
sluice_array *sluice_array_open(sluice_file *file);

/* sluice_array_create makes the file a .npy file, as long as it has to be, of zeroes. What it held
 * is lost. */
sluice_array *sluice_array_create(sluice_file *file, const char *dtype, unsigned axes,
                                  const int64_t *shape, unsigned flags);

/* sluice_array_raw is an array without a header that begins at off. It looks at nothing. */
sluice_array *sluice_array_raw(sluice_file *file, int64_t off, const char *dtype, unsigned axes,
                               const int64_t *shape, unsigned flags);

/* sluice_array_close ends the array, not its file; sluice_array_sync is sluice_sync of that. */
int sluice_array_close(sluice_array *array);
int sluice_array_sync(sluice_array *array);

struct sluice_array_info {
	uint32_t size; /* sizeof(struct sluice_array_info), set before the call */
	uint32_t axes;
	int64_t shape[SLUICE_AXES];
	uint64_t element; /* bytes of one */
	int64_t offset;   /* of the first element in the file */
	int64_t bytes;    /* of all elements */
	uint32_t flags;   /* SLUICE_FORTRAN */
	uint32_t reserved;
	char dtype[128]; /* cut off where it is longer */
};
int sluice_array_info(sluice_array *array, struct sluice_array_info *info);

/* Places along one axis: start, start + step, ..., count of them. A step of 0 is 1; it may be
 * negative. All of them must be there (EINVAL). */
struct sluice_slice {
	int64_t start;
	int64_t count;
	int64_t step;
};

/*
 * Read and write a part of an array: a slice for each axis; NULL: all of it. The element at the
 * place (i, j, ...) of the part lies in memory at i * strides[0] + j * strides[1] + ... bytes from
 * memory, which strides may take below memory, too. NULL: without gaps, the last axis the fastest.
 * What lies between is not touched. They return how many bytes were moved. EINVAL: elements that
 * are read overlap in memory, or the file is too short. EFAULT: from the first element to the last
 * one memory is not all mapped.
 */
ssize_t sluice_array_read(sluice_array *array, const struct sluice_slice *slices, void *memory,
                          const int64_t *strides);
ssize_t sluice_array_write(sluice_array *array, const struct sluice_slice *slices,
                           const void *memory, const int64_t *strides);

/*
 * Tiles cut an array into boxes of one shape, numbered along each axis from 0; those at the end are
 * smaller. A tile is read with ghost cells, so many of its neighbours at both ends of each axis
 * (NULL: none). Outside of the array nothing is read, unless the array is periodic (SLUICE_WRAP).
 */
enum { SLUICE_WRAP = 1, SLUICE_COLUMN_MAJOR = 2 };
struct sluice_tiling {
	uint32_t size; /* sizeof(struct sluice_tiling) */
	uint32_t flags;
	const int64_t *shape; /* of a tile, for each axis */
	const int64_t *ghost; /* or NULL */
};

/* sluice_array_grid tells how many tiles there are along each axis. */
int sluice_array_grid(sluice_array *array, const struct sluice_tiling *tiling, int64_t *grid);

/* sluice_array_tile_box tells where the tile at a place of the grid lies, with its ghost cells: from
 * low to high (not included), each of which may be NULL; and returns how many bytes it takes. */
ssize_t sluice_array_tile_box(sluice_array *array, const struct sluice_tiling *tiling,
                              const int64_t *at, int64_t *low, int64_t *high);

/* Read a tile with its ghost cells; write one without them, from memory of the same shape. len is
 * what sluice_array_tile_box returns (EINVAL), and so do they. */
ssize_t sluice_array_read_tile(sluice_array *array, const struct sluice_tiling *tiling,
                               const int64_t *at, void *memory, size_t len);
ssize_t sluice_array_write_tile(sluice_array *array, const struct sluice_tiling *tiling,
                                const int64_t *at, const void *memory, size_t len);

/* ---- names and attributes ------------------------------------------------------------------- */

struct sluice_time {
	int64_t sec;
	uint32_t nsec;
	uint32_t reserved;
};

struct sluice_stat {
	uint64_t ino;
	int64_t size;    /* bytes */
	int64_t space;   /* bytes that it takes, as far as that is known */
	uint64_t change; /* another one whenever the data has changed */
	uint32_t mode;   /* type and rights, as st_mode */
	uint32_t nlink;
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint32_t reserved;
	struct sluice_time atime;
	struct sluice_time mtime;
	struct sluice_time ctime;
};

struct sluice_dirent {
	struct sluice_stat stat;
	char name[256];
};

struct sluice_statfs {
	uint64_t bytes;
	uint64_t bytes_free;
	uint64_t files;
	uint64_t reserved[5];
};

int sluice_stat(sluice_fs *fs, const char *path, struct sluice_stat *st);
int sluice_lstat(sluice_fs *fs, const char *path, struct sluice_stat *st);
int sluice_fstat(sluice_file *file, struct sluice_stat *st);
int sluice_statfs(sluice_fs *fs, const char *path, struct sluice_statfs *st);

/* The layout of a file, or of what is made in a directory. The size field must be set. */
int sluice_get_layout(sluice_fs *fs, const char *path, struct sluice_layout *layout);
int sluice_flayout(sluice_file *file, struct sluice_layout *layout);
/* For what is made in a directory from now on, or for a file that nothing was ever written to. */
int sluice_set_layout(sluice_fs *fs, const char *path, const struct sluice_layout *layout);

enum { SLUICE_NOREPLACE = 1, SLUICE_EXCHANGE = 2 };
int sluice_rename(sluice_fs *fs, const char *from, const char *to, int flags);
int sluice_truncate(sluice_fs *fs, const char *path, int64_t size);
int sluice_unlink(sluice_fs *fs, const char *path);
int sluice_mkdir(sluice_fs *fs, const char *path, mode_t mode);
int sluice_mkdir_all(sluice_fs *fs, const char *path, mode_t mode); /* those above it, too */
int sluice_rmdir(sluice_fs *fs, const char *path);
int sluice_remove_all(sluice_fs *fs, const char *path); /* with all that is below it */
int sluice_link(sluice_fs *fs, const char *path, const char *name);
int sluice_symlink(sluice_fs *fs, const char *target, const char *path);
/* The target with a zero behind it; its length without. ERANGE: it does not fit into len. */
ssize_t sluice_readlink(sluice_fs *fs, const char *path, char *buf, size_t len);
int sluice_chmod(sluice_fs *fs, const char *path, mode_t mode);
int sluice_chown(sluice_fs *fs, const char *path, int64_t uid, int64_t gid); /* -1: as it is */
/* NULL: as it is. */
int sluice_utimes(sluice_fs *fs, const char *path, const struct sluice_time *atime,
                  const struct sluice_time *mtime);

/* A directory's entries in no particular order, without "." and "..", with attributes. */
sluice_dir *sluice_opendir(sluice_fs *fs, const char *path);
int sluice_readdir(sluice_dir *dir, struct sluice_dirent *entry); /* 1: an entry, 0: the end */
int sluice_closedir(sluice_dir *dir);

#ifdef __cplusplus
}
#endif
#endif
