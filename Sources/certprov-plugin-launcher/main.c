// Starts a plugin, and ends it with everything that it has started.
//
//     certprov-plugin-launcher DIRECTORY DATA FILES PROGRAM
//
// DIRECTORY is the plugin's working directory, which is made, and removed at the end, DATA its limit of memory in bytes, FILES that of open files.
// Standard input, output and error are the plugin's. Descriptor 3 is a stream socket to the host:
//
//     host sends "T"           SIGTERM to the plugin
//     host sends "K", or ends  SIGKILL to the plugin and all its descendants
//     launcher sends           "directory ERRNO\n"  no working directory; nothing was started
//                              "start ERRNO\n"      the program cannot be executed
//                              "exit STATUS\n" or "signal NUMBER\n"  how the plugin ended
//
// The socket ends when the last descendant has ended and the working directory is removed.
//
// A process of its own, in C: the host has threads, which only an executed program leaves behind, and this one waits as long
// as the plugin runs.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { control = 3, usage_error = 64 };

static char directory[4096];

static void report(const char *what, int value)
{
    char line[64];
    int size = snprintf(line, sizeof line, "%s %d\n", what, value);
    // The host may have gone.
    ssize_t written = write(control, line, (size_t)size);
    (void)written;
}

static void limit(int resource, rlim_t value)
{
    struct rlimit now;
    if (getrlimit(resource, &now) != 0) return;
    if (now.rlim_max != RLIM_INFINITY && now.rlim_max < value) value = now.rlim_max;
    struct rlimit new = { value, value };
    setrlimit(resource, &new);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    remove(path);
    return 0;
}

static void remove_directory(void)
{
    if (directory[0]) nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

// The parent of a process, from /proc/PID/stat: the second field behind the last parenthesis of its name.
static pid_t parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return -1;
    text[size] = 0;
    char *end = strrchr(text, ')'), state;
    int parent;
    return end && sscanf(end + 1, " %c %d", &state, &parent) == 2 ? parent : -1;
}

// Sends a signal to each child. Orphans are children too, since this process adopts them.
static void signal_children(int number)
{
    DIR *all = opendir("/proc");
    if (!all) return;
    pid_t self = getpid();
    for (struct dirent *entry; (entry = readdir(all));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == self)
            kill((pid_t)atol(entry->d_name), number);
    closedir(all);
}

static pid_t plugin;

// Takes note of children that have ended. Returns whether there is none any more.
static int reap(void)
{
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == 0) return 0;
        if (ended < 0) return errno == ECHILD;
        if (ended != plugin) continue;
        plugin = 0;
        if (WIFSIGNALED(status)) report("signal", WTERMSIG(status));
        else report("exit", WEXITSTATUS(status));
    }
}

// Ends every descendant: with its parent's end each becomes a child.
static void end_all(void)
{
    while (!reap()) {
        signal_children(SIGKILL);
        struct timespec pause = { 0, 2000000 };
        nanosleep(&pause, NULL);
    }
}

static pid_t start(char *program)
{
    int result[2];
    if (pipe2(result, O_CLOEXEC) != 0) return -1;
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        // The plugin goes when this process is killed.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        char *arguments[] = { program, NULL };
        if (getppid() == self) execv(program, arguments);
        int code = errno;
        ssize_t written = write(result[1], &code, sizeof code);
        (void)written;
        _exit(127);
    }
    int code = errno;
    close(result[1]);
    if (child > 0 && read(result[0], &code, sizeof code) == sizeof code) {
        waitpid(child, NULL, 0);
        child = -1;
    }
    close(result[0]);
    errno = code;
    return child;
}

int main(int count, char **arguments)
{
    if (count != 5) {
        fprintf(stderr, "usage: %s DIRECTORY DATA FILES PROGRAM\nStarted by certprov for each plugin.\n", arguments[0]);
        return usage_error;
    }
    close_range(control + 1, ~0U, 0);
    fcntl(control, F_SETFD, FD_CLOEXEC);
    // Signals of the host's terminal are the host's.
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    umask(077);
    // What has been set to be ignored stays so in a new program; a plugin starts with what is usual.
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP) signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGHUP);
    sigprocmask(SIG_SETMASK, &watched, NULL);
    int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);

    if (strlen(arguments[1]) >= sizeof directory || mkdir(arguments[1], 0700) != 0) {
        report("directory", strlen(arguments[1]) < sizeof directory ? errno : ENAMETOOLONG);
        return 1;
    }
    strcpy(directory, arguments[1]);
    if (signals < 0 || chdir(directory) != 0 || setenv("HOME", directory, 1) != 0 || setenv("TMPDIR", directory, 1) != 0) {
        report("directory", errno);
        remove_directory();
        return 1;
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_DATA, strtoull(arguments[2], NULL, 10));
    limit(RLIMIT_NOFILE, strtoull(arguments[3], NULL, 10));

    signal(SIGPIPE, SIG_DFL);
    plugin = start(arguments[4]);
    if (plugin < 0) {
        report("start", errno);
        chdir("/");
        remove_directory();
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    // The plugin's streams are the plugin's alone: they end with it.
    for (int stream = 0; stream <= 2; stream++) close(stream);

    struct pollfd waiting[] = { { signals, POLLIN, 0 }, { control, POLLIN, 0 } };
    while (plugin) {
        if (poll(waiting, 2, -1) < 0) continue;
        if (waiting[0].revents) {
            struct signalfd_siginfo info;
            int is_ending = 0;
            while (read(signals, &info, sizeof info) == sizeof info) is_ending |= info.ssi_signo != SIGCHLD;
            reap();
            if (is_ending) break;
        }
        if (waiting[1].revents) {
            char order = 0;
            ssize_t got = read(control, &order, 1);
            if (got < 0 && errno == EINTR) continue;
            if (got == 1 && order == 'T') signal_children(SIGTERM);
            else break;
        }
    }
    end_all();
    chdir("/");
    remove_directory();
    return 0;
}
