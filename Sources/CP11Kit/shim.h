#include <p11-kit/p11-kit.h>
#include <p11-kit/pkcs11.h>
#include <p11-kit/uri.h>

#include <stdio.h>

/// Writes out what stands in the buffers of the standard streams, but for those that another thread is using.
static inline void certprov_flush_standard_streams(void) {
    FILE *streams[] = {stdout, stderr};
    for (int index = 0; index < 2; index++) {
        if (ftrylockfile(streams[index]) != 0) continue;
        fflush_unlocked(streams[index]);
        funlockfile(streams[index]);
    }
}
