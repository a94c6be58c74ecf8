#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <spawn.h>
#include <unistd.h>

// prctl(2) takes a variable number of arguments, which Swift cannot call.
static inline int certprov_set_dumpable(int dumpable) { return prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0); }

// Swift's Glibc module has neither pipe2(2) nor eventfd(2), and fcntl(2) takes a variable number of arguments.
static inline int certprov_pipe(int descriptors[2]) { return pipe2(descriptors, O_CLOEXEC); }
// A copy of a descriptor above those that a new program gets. Closes the original.
static inline int certprov_move_up(int descriptor)
{
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 10);
    close(descriptor);
    return copy;
}
// A descriptor that becomes readable when the process ends.
static inline int certprov_process(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }
// Has a program that is started not get the descriptors from this one on. Swift's Glibc module does not have it.
static inline int certprov_close_from(posix_spawn_file_actions_t *actions, int lowest)
{
    return posix_spawn_file_actions_addclosefrom_np(actions, lowest);
}
static inline int certprov_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
static inline int certprov_set_nonblocking(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags < 0 ? -1 : fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
}

// A descriptor, the lowest that is free, that can be neither read nor written. Swift has no O_PATH.
static inline int certprov_take_descriptor(void) { return open("/", O_PATH); }

// Writes to a pipe without the SIGPIPE that the process would get when its reader has gone.
static inline ssize_t certprov_write(int descriptor, const void *bytes, size_t count)
{
    sigset_t broken_pipe, before;
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
    ssize_t written = write(descriptor, bytes, count);
    int code = errno;
    if (written < 0 && code == EPIPE && !sigismember(&before, SIGPIPE)) {
        struct timespec now = { 0, 0 };
        while (sigtimedwait(&broken_pipe, NULL, &now) < 0 && errno == EINTR) continue;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return written;
}

// glibc has no functions for keyrings(7). Each returns -1 and sets errno where it fails.
static inline long certprov_keyring_id(int special) { return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, special, 0); }
static inline int certprov_session_keyring(void) { return KEY_SPEC_SESSION_KEYRING; }
static inline int certprov_user_session_keyring(void) { return KEY_SPEC_USER_SESSION_KEYRING; }
static inline long certprov_key_add(const char *name, const void *bytes, size_t count)
{
    return syscall(SYS_add_key, "user", name, bytes, count, KEY_SPEC_PROCESS_KEYRING);
}
static inline long certprov_key_link_to_session(long key)
{
    return syscall(SYS_keyctl, KEYCTL_LINK, key, KEY_SPEC_SESSION_KEYRING);
}
static inline long certprov_key_find(const char *name)
{
    return syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", name, 0);
}
static inline long certprov_key_read(long key, void *bytes, size_t count)
{
    return syscall(SYS_keyctl, KEYCTL_READ, key, bytes, count);
}
static inline long certprov_key_set_timeout(long key, unsigned seconds)
{
    return syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, key, seconds);
}
static inline long certprov_key_describe(long key, char *text, size_t count)
{
    return syscall(SYS_keyctl, KEYCTL_DESCRIBE, key, text, count);
}
static inline long certprov_key_invalidate(long key) { return syscall(SYS_keyctl, KEYCTL_INVALIDATE, key); }
