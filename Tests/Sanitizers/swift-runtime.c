/* Tells the thread sanitizer where Swift's own libraries synchronize.
 *
 * They are not compiled for it, so that it does not see that a contended Mutex is handed from one thread to another, nor
 * that what resumes a continuation happens before what awaits it, where it is resumed first. Without this every hot lock is
 * reported. Loaded before the libraries (LD_PRELOAD), and of no effect in a program without the sanitizer. Nothing is hidden:
 * where no lock is taken and no continuation resumed, nothing of this is called.
 *
 * The order between a resumption and a wait that begin at the same instant is the one that is still not seen. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

__attribute__((weak)) void __tsan_acquire(void *);
__attribute__((weak)) void __tsan_release(void *);

static void acquire(void *place) { if (__tsan_acquire) __tsan_acquire(place); }
static void release(void *place) { if (__tsan_release) __tsan_release(place); }

#define SWIFT __attribute__((swiftcall))
#define SELF __attribute__((swift_context)) void *self

/* Synchronization.Mutex: what is called when it is not free. The rest is compiled into the caller, and seen there. */
#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

static SWIFT void (*next_lock)(uint32_t, SELF);
static SWIFT bool (*next_try_lock)(SELF);
static SWIFT void (*next_unlock)(SELF);

SWIFT void lock(uint32_t thread, SELF) __asm__(LOCK);
SWIFT bool try_lock(SELF) __asm__(TRY_LOCK);
SWIFT void unlock(SELF) __asm__(UNLOCK);

SWIFT void lock(uint32_t thread, SELF) {
    next_lock(thread, self);
    acquire(self);
}

SWIFT bool try_lock(SELF) {
    bool is_mine = next_try_lock(self);
    if (is_mine) acquire(self);
    return is_mine;
}

SWIFT void unlock(SELF) {
    release(self);
    next_unlock(self);
}

/* Continuations. A task's own memory may be gone when it is resumed: a place of ours stands for it. */
static uint64_t places[1 << 16];
static void *place(void *task) { return &places[((uintptr_t)task >> 4) & 0xffff]; }

__attribute__((weak)) SWIFT void *swift_task_getCurrent(void);
static SWIFT void (*next_resume)(void *);
static SWIFT void (*next_throwing_resume)(void *);
static SWIFT void (*next_throwing_resume_with_error)(void *, void *);
static SWIFT void (*next_dealloc)(void *);
static __attribute__((swiftasynccall)) void (*next_await)(void *);

static void acquire_resumption(void) { if (swift_task_getCurrent) acquire(place(swift_task_getCurrent())); }

SWIFT void swift_continuation_resume(void *task) {
    release(place(task));
    next_resume(task);
}

SWIFT void swift_continuation_throwingResume(void *task) {
    release(place(task));
    next_throwing_resume(task);
}

SWIFT void swift_continuation_throwingResumeWithError(void *task, void *error) {
    release(place(task));
    next_throwing_resume_with_error(task, error);
}

/* CheckedContinuation.resume(returning:) and resume(throwing:), which call the above within their library. The continuation
 * is an object, and behind its header the task. */
#define RETURN "$sScC6resume9returningyxn_tF"
#define THROW "$sScC6resume8throwingyq_n_tF"

static SWIFT void (*next_return)(void *, void *, SELF);
static SWIFT void (*next_throw)(void *, void *, SELF);

SWIFT void checked_return(void *value, void *type, SELF) __asm__(RETURN);
SWIFT void checked_throw(void *error, void *type, SELF) __asm__(THROW);

static void *task_of(void **continuation) { return ((void **)*continuation)[2]; }

SWIFT void checked_return(void *value, void *type, SELF) {
    release(place(task_of(self)));
    next_return(value, type, self);
}

SWIFT void checked_throw(void *error, void *type, SELF) {
    release(place(task_of(self)));
    next_throw(error, type, self);
}

__attribute__((swiftasynccall)) void swift_continuation_await(void *context) {
    acquire_resumption();
    __attribute__((musttail)) return next_await(context);
}

/* withCheckedContinuation awaits within its library: what comes next in a task is that its caller gives back the memory of
 * the call. */
SWIFT void swift_task_dealloc(void *memory) {
    acquire_resumption();
    next_dealloc(memory);
}

__attribute__((constructor)) static void find_what_is_replaced(void) {
    next_lock = dlsym(RTLD_NEXT, LOCK);
    next_try_lock = dlsym(RTLD_NEXT, TRY_LOCK);
    next_unlock = dlsym(RTLD_NEXT, UNLOCK);
    next_resume = dlsym(RTLD_NEXT, "swift_continuation_resume");
    next_throwing_resume = dlsym(RTLD_NEXT, "swift_continuation_throwingResume");
    next_throwing_resume_with_error = dlsym(RTLD_NEXT, "swift_continuation_throwingResumeWithError");
    next_return = dlsym(RTLD_NEXT, RETURN);
    next_throw = dlsym(RTLD_NEXT, THROW);
    next_dealloc = dlsym(RTLD_NEXT, "swift_task_dealloc");
    next_await = dlsym(RTLD_NEXT, "swift_continuation_await");
}
