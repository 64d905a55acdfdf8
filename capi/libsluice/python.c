/*
 * python.c - reads and writes for CPython, as builtin functions: what ctypes spends on arguments, and
 * on the address of a buffer, is as long as a small read takes.
 *
 * No headers of Python are needed, and no version of it: the package says where the functions of
 * its interpreter are (struct shim_python), and what is known here of its structures is part of its
 * stable ABI, and was the same before that (3.9). The file to compare with: python/sluice/_call.py.
 *
 * The interpreter's lock is not held while a call is under way. A buffer is: nobody resizes or frees
 * its memory, so that nothing must be looked at, as sluice_pread does.
 */
#include <errno.h>
#include <stddef.h>

#include "shim.h"

typedef struct object object; /* PyObject */

typedef object *(*function)(object *self, object *const *args, ptrdiff_t count);

/* PyMethodDef */
struct method {
	const char *name;
	function call;
	int flags;
	const char *doc;
};

enum { METHOD_FASTCALL = 0x80, BUFFER_SIMPLE = 0, BUFFER_WRITABLE = 1 };

/* Py_buffer */
struct buffer {
	void *buf;
	object *obj;
	ptrdiff_t len, itemsize;
	int readonly, ndim;
	char *format;
	ptrdiff_t *shape, *strides, *suboffsets;
	void *internal;
};

/* The functions of the interpreter, in the order of _call.py. */
struct shim_python {
	int (*get_buffer)(object *of, struct buffer *to, int flags);
	void (*release_buffer)(struct buffer *);
	void *(*unlock)(void);
	void (*lock)(void *thread);
	long long (*as_number)(object *);
	object *(*from_number)(long long);
	object *(*failed)(void);
	int (*bad_argument)(void);
	object *(*function)(struct method *, object *self, object *module);
};

static struct shim_python py;

typedef int64_t (*transfer)(uintptr_t file, uintptr_t buf, uint64_t len, int64_t off);

/*
 * run is function(file, buffer, offset): how many bytes, or -errno. What is wrong with the arguments
 * is an exception.
 */
static object *run(transfer call, int flags, object *const *args, ptrdiff_t count)
{
	struct buffer b;
	long long file, off;
	int64_t n;
	void *thread;

	if (count != 3) {
		py.bad_argument();
		return NULL;
	}
	file = py.as_number(args[0]);
	off = py.as_number(args[2]);
	if ((file == -1 || off == -1) && py.failed() != NULL)
		return NULL;
	if (py.get_buffer(args[1], &b, flags) != 0)
		return NULL;
	thread = py.unlock();
	n = call((uintptr_t)file, (uintptr_t)b.buf, (uint64_t)b.len, off);
	if (n < 0)
		n = -errno;
	py.lock(thread);
	py.release_buffer(&b);
	return py.from_number(n);
}

static object *pread_into(object *self, object *const *args, ptrdiff_t count)
{
	(void)self;
	return run(shim_pread, BUFFER_WRITABLE, args, count);
}

static object *pwrite_from(object *self, object *const *args, ptrdiff_t count)
{
	(void)self;
	return run(shim_pwrite, BUFFER_SIMPLE, args, count);
}

static int64_t append_at(uintptr_t file, uintptr_t buf, uint64_t len, int64_t off)
{
	(void)off;
	return shim_append(file, buf, len);
}

static object *append_from(object *self, object *const *args, ptrdiff_t count)
{
	(void)self;
	return run(append_at, BUFFER_SIMPLE, args, count);
}

static struct method methods[] = {
    {"pread", pread_into, METHOD_FASTCALL, NULL},
    {"pwrite", pwrite_from, METHOD_FASTCALL, NULL},
    {"append", append_from, METHOD_FASTCALL, NULL},
};

/*
 * sluice_python_function is one of methods as an object; NULL: there are no more. The lock of the
 * interpreter is held.
 */
object *sluice_python_function(const struct shim_python *functions, unsigned which)
{
	if (which >= sizeof methods / sizeof methods[0]) {
		functions->bad_argument();
		return NULL;
	}
	py = *functions;
	return py.function(&methods[which], NULL, NULL);
}
