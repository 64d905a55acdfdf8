/* shim.h - what the C part and the Go part of libsluice know of each other. */
#ifndef SLUICE_SHIM_H
#define SLUICE_SHIM_H

#include <stdint.h>

/* The environment of a connection, in this order: Go's own copy dates from when it was loaded. */
enum {
	SHIM_ENV_URL,
	SHIM_ENV_CREDENTIAL,
	SHIM_ENV_SECRET,
	SHIM_ENV_PROVIDERS,
	SHIM_ENV_PROGRESS,
	SHIM_ENV_COUNT
};

#define SHIM_TEXT 512

/* Calls for buffers that are known to be memory: python.c. */
int64_t shim_pread(uintptr_t file, uintptr_t buf, uint64_t len, int64_t off);
int64_t shim_pwrite(uintptr_t file, uintptr_t buf, uint64_t len, int64_t off);
int64_t shim_append(uintptr_t file, uintptr_t buf, uint64_t len);

#endif
