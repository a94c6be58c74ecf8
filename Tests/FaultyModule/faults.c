#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

struct fault {
    unsigned skip, count;
    CK_RV result;
};

static struct function {
    const char *name;
    unsigned calls;
    struct fault failure, loss;
    /// What each call answers until `C_Finalize`.
    CK_RV breakdown;
    int is_held, is_answer_held;
    unsigned milliseconds;
    int forgets_mutex;
} functions[FUNCTIONS];

static unsigned held, releases;

static struct function *function_named(const char *name) {
    for (unsigned index = 0; index < FUNCTIONS; index++) {
        struct function *function = &functions[index];
        if (function->name == NULL) function->name = strdup(name);
        if (strcmp(function->name, name) == 0) return function;
    }
    abort();
}

static void wait_for_release(void) {
    unsigned release = releases;
    held++;
    pthread_cond_broadcast(&state.changed);
    while (releases == release) pthread_cond_wait(&state.changed, &state.lock);
    held--;
}

void come_in(void) {
    if (__atomic_add_fetch(&state.inside, 1, __ATOMIC_SEQ_CST) > 1) {
        __atomic_add_fetch(&state.overlaps, 1, __ATOMIC_SEQ_CST);
    }
}

void go_out(void) { __atomic_sub_fetch(&state.inside, 1, __ATOMIC_SEQ_CST); }

CK_RV enter(const char *name) {
    struct function *function = function_named(name);
    function->calls++;
    const char *fatal = getenv("FAULTY_MODULE_CRASH");
    if (fatal && strcmp(fatal, name) == 0) _exit(1);
    if (function->is_held) wait_for_release();
    if (function->milliseconds > 0) {
        unsigned milliseconds = function->milliseconds;
        pthread_mutex_unlock(&state.lock);
        nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000 * 1000}, NULL);
        pthread_mutex_lock(&state.lock);
    }
    // In the meantime others may come and go.
    if (state.uses_mutex && state.mutex && strcmp(name, "C_Initialize") != 0) {
        int forgets = function->forgets_mutex;
        function->forgets_mutex = 0;
        pthread_mutex_unlock(&state.lock);
        state.lock_mutex(state.mutex);
        if (!forgets) state.unlock_mutex(state.mutex);
        pthread_mutex_lock(&state.lock);
    }
    if (function->breakdown != CKR_OK) return function->breakdown;
    struct fault *fault = &function->failure;
    if (fault->count > 0 && fault->skip > 0) {
        fault->skip--;
    } else if (fault->count > 0) {
        fault->count--;
        return fault->result;
    }
    return CKR_OK;
}

/// Leaves a mark in the file that a variable names, if any.
static void mark(const char *variable) {
    const char *path = getenv(variable);
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    if (write(file, ".", 1) != 1) abort();
    close(file);
}

void count_pin(void) {
    state.pins++;
    mark("FAULTY_MODULE_PINS");
    // How long the token takes for it, as cards do.
    const char *milliseconds = getenv("FAULTY_MODULE_LOGIN");
    long time = milliseconds ? atol(milliseconds) : 0;
    nanosleep(&(struct timespec){.tv_sec = time / 1000, .tv_nsec = time % 1000 * 1000000}, NULL);
    // It answers when this file is there.
    const char *answer = getenv("FAULTY_MODULE_ANSWER");
    while (answer && access(answer, F_OK) != 0) nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

void end_slowly(void) {
    if (getenv("FAULTY_MODULE_FINALIZED") == NULL) return;
    nanosleep(&(struct timespec){.tv_nsec = 500 * 1000 * 1000}, NULL);
    mark("FAULTY_MODULE_FINALIZED");
}

CK_RV leave(const char *name, CK_RV result) {
    struct function *function = function_named(name);
    if (function->is_answer_held) wait_for_release();
    struct fault *fault = &function->loss;
    if (fault->count == 0) return result;
    fault->count--;
    return fault->result;
}

void set_failure(const char *name, unsigned skip, unsigned count, CK_RV result) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->failure = (struct fault){skip, count, result};
    pthread_mutex_unlock(&state.lock);
}

void break_down(const char *name, CK_RV result) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->breakdown = result;
    pthread_mutex_unlock(&state.lock);
}

void mend(void) {
    for (unsigned index = 0; index < FUNCTIONS; index++) functions[index].breakdown = CKR_OK;
}

void set_loss(const char *name, unsigned count, CK_RV result) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->loss = (struct fault){0, count, result};
    pthread_mutex_unlock(&state.lock);
}

void slow_down(const char *name, unsigned milliseconds) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->milliseconds = milliseconds;
    pthread_mutex_unlock(&state.lock);
}

void forget_mutex(const char *name) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->forgets_mutex = state.uses_mutex = 1;
    pthread_mutex_unlock(&state.lock);
}

void hold(const char *name) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->is_held = 1;
    pthread_mutex_unlock(&state.lock);
}

void hold_answer(const char *name) {
    pthread_mutex_lock(&state.lock);
    function_named(name)->is_answer_held = 1;
    pthread_mutex_unlock(&state.lock);
}

void release(void) {
    pthread_mutex_lock(&state.lock);
    for (unsigned index = 0; index < FUNCTIONS; index++) functions[index].is_held = functions[index].is_answer_held = 0;
    releases++;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

int wait_held(unsigned count) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 600;
    pthread_mutex_lock(&state.lock);
    int result = 0;
    while (held < count && result == 0) result = pthread_cond_timedwait(&state.changed, &state.lock, &deadline);
    pthread_mutex_unlock(&state.lock);
    return result == 0;
}

unsigned calls(const char *name) {
    pthread_mutex_lock(&state.lock);
    unsigned count = function_named(name)->calls;
    pthread_mutex_unlock(&state.lock);
    return count;
}
