#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <spawn.h>
#include <string.h>
#include <unistd.h>

int certprov_set_dumpable(int dumpable) { return prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0); }

int certprov_pipe(int descriptors[2]) { return pipe2(descriptors, O_CLOEXEC); }
int certprov_move_up(int descriptor)
{
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 10);
    close(descriptor);
    return copy;
}
int certprov_process(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }
int certprov_close_from(void *actions, int lowest)
{
    return posix_spawn_file_actions_addclosefrom_np(actions, lowest);
}
int certprov_spawn_bound(const char *program, char *const arguments[], char *const variables[], const int streams[3],
    int *process)
{
    // posix_spawn(3) cannot set what happens when the parent ends. No handler may run in the child before its program does: until
    // then it has the memory of this process.
    sigset_t all, none, before;
    sigfillset(&all);
    sigemptyset(&none);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t parent = getpid();
    volatile int code = 0;
    pid_t child = vfork();
    if (child == 0) {
        struct sigaction usual = { .sa_handler = SIG_DFL };
        for (int number = 1; number < NSIG; number++) sigaction(number, &usual, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && setsid() >= 0 && dup2(streams[0], 0) >= 0
            && dup2(streams[1], 1) >= 0 && dup2(streams[2], 2) >= 0) {
            closefrom(3);
            sigprocmask(SIG_SETMASK, &none, NULL);
            execve(program, arguments, variables);
        }
        code = errno;
        _exit(127);
    }
    if (child < 0) code = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (child > 0 && code != 0) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    }
    *process = child;
    return code;
}
int certprov_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
int certprov_set_nonblocking(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags < 0 ? -1 : fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
}

int certprov_take_descriptor(void) { return open("/", O_PATH); }

long certprov_write(int descriptor, const void *bytes, long count)
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

int certprov_accept(int listener) { return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); }
int certprov_peer(int descriptor, int *pid, unsigned *user, unsigned *group)
{
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return -1;
    *pid = peer.pid;
    *user = peer.uid;
    *group = peer.gid;
    return 0;
}

const void *certprov_find(const void *needle, long needle_count, const void *bytes, long count)
{
    return memmem(bytes, count, needle, needle_count);
}

long certprov_keyring_id(int special) { return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, special, 0); }
int certprov_session_keyring(void) { return KEY_SPEC_SESSION_KEYRING; }
int certprov_user_session_keyring(void) { return KEY_SPEC_USER_SESSION_KEYRING; }
long certprov_key_add(const char *name, const void *bytes, long count)
{
    return syscall(SYS_add_key, "user", name, bytes, count, KEY_SPEC_PROCESS_KEYRING);
}
long certprov_key_link_to_session(long key)
{
    return syscall(SYS_keyctl, KEYCTL_LINK, key, KEY_SPEC_SESSION_KEYRING);
}
long certprov_key_find(const char *name)
{
    return syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", name, 0);
}
long certprov_key_read(long key, void *bytes, long count)
{
    return syscall(SYS_keyctl, KEYCTL_READ, key, bytes, count);
}
long certprov_key_set_timeout(long key, unsigned seconds)
{
    return syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, key, seconds);
}
long certprov_key_describe(long key, char *text, long count)
{
    return syscall(SYS_keyctl, KEYCTL_DESCRIBE, key, text, count);
}
long certprov_key_invalidate(long key) { return syscall(SYS_keyctl, KEYCTL_INVALIDATE, key); }

static const char access_list[] = "system.posix_acl_access";
long certprov_access_list(int descriptor, void *bytes, long count)
{
    return fgetxattr(descriptor, access_list, bytes, (size_t)count);
}

int certprov_set_access_list(int descriptor, const void *bytes, long count)
{
    return fsetxattr(descriptor, access_list, bytes, (size_t)count, 0);
}
