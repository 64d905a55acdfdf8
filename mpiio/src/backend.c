/* The client. It is loaded when the first file of ours is opened, so that a program that was
 * started with us in LD_PRELOAD and has no such file pays for nothing. */
#include "internal.h"
#include "pass.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct api sluice;

static pthread_once_t loading = PTHREAD_ONCE_INIT;
static __typeof__(&sluice_connect) api_connect;
static bool loaded;

static void *library(void) {
    const char *named = getenv("SLUICE_LIBRARY");
    void *l = dlopen(named && *named ? named : "libsluice.so", RTLD_NOW | RTLD_LOCAL);
    if (!l && !named)
        l = dlopen("libsluice.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!l)
        fprintf(stderr, "libsluice-mpiio: %s; is it in LD_LIBRARY_PATH, or SLUICE_LIBRARY set?\n",
                dlerror());
    return l;
}

#define LOAD(name)                                                                                 \
    do {                                                                                           \
        if (!(sluice.name = (__typeof__(sluice.name))dlsym(l, "sluice_" #name))) {                 \
            fprintf(stderr, "libsluice-mpiio: libsluice is too old: no sluice_" #name "\n");       \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static void load(void) {
    void *l = library();
    if (!l)
        return;
    LOAD(error);
    LOAD(alloc);
    LOAD(free);
    LOAD(open);
    LOAD(close);
    LOAD(pread);
    LOAD(pwrite);
    LOAD(read_list);
    LOAD(write_list);
    LOAD(sync);
    LOAD(ftruncate);
    LOAD(reserve);
    LOAD(lock);
    LOAD(unlock);
    LOAD(fstat);
    LOAD(flayout);
    LOAD(set_layout);
    LOAD(unlink);
    api_connect = (__typeof__(api_connect))dlsym(l, "sluice_connect");
    loaded = api_connect != NULL;
}

int backend_connect(sluice_fs **out) {
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static sluice_fs *fs;
    pthread_once(&loading, load);
    if (!loaded)
        return ELIBACC;
    int err = 0;
    pthread_mutex_lock(&mu);
    if (!fs && !(fs = api_connect(NULL, NULL)))
        err = errno ? errno : EIO;
    *out = fs;
    pthread_mutex_unlock(&mu);
    return err;
}

void *next_symbol(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);
    if (!p) {
        fprintf(stderr, "libsluice-mpiio: no MPI library behind this one has %s\n", name);
        abort();
    }
    return p;
}
