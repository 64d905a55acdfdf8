/* On to the MPI's own function of the same name, for files that are not ours. */
#ifndef SLUICE_MPIIO_PASS_H
#define SLUICE_MPIIO_PASS_H

#include "internal.h"

#pragma GCC visibility push(hidden)
void *next_symbol(const char *name); /* ends the program where there is none */
#pragma GCC visibility pop

#define NEXT(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(&name) fn;                                                               \
        __typeof__(fn) f_ = __atomic_load_n(&fn, __ATOMIC_ACQUIRE);                                \
        if (!f_) {                                                                                 \
            f_ = (__typeof__(fn))next_symbol("P" #name);                                           \
            __atomic_store_n(&fn, f_, __ATOMIC_RELEASE);                                           \
        }                                                                                          \
        f_;                                                                                        \
    })

#endif
