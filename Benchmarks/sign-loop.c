// The peer of the token benchmark: a plain loop of C_SignInit and C_Sign, with one session held by each thread.
//
//     sign-loop MODULE LABEL PIN THREADS SECONDS [held]
//     sign-loop MODULE LABEL PIN connections NUMBER
//
// Signs with the first private key of the token LABEL, which is on P-256, and prints signatures per second. With connections it loads
// the token anew for each signature, and prints nothing. With held it prints ready, and begins with its input.
#include <dlfcn.h>
#include <p11-kit/pkcs11.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static CK_FUNCTION_LIST *functions;
static CK_SLOT_ID slot;
static int needs_login;
static const char *pin;
static atomic_bool over;
static atomic_long total;

static void check(const char *what, CK_RV result) {
    if (result == CKR_OK) return;
    fprintf(stderr, "%s: 0x%lx\n", what, result);
    exit(1);
}

static void load(const char *label) {
    CK_C_INITIALIZE_ARGS locking = {.flags = CKF_OS_LOCKING_OK};
    check("C_Initialize", functions->C_Initialize(&locking));
    CK_SLOT_ID slots[16];
    unsigned long slot_count = 16;
    check("C_GetSlotList", functions->C_GetSlotList(CK_TRUE, slots, &slot_count));
    for (unsigned long i = 0; i < slot_count; i++) {
        CK_TOKEN_INFO token;
        check("C_GetTokenInfo", functions->C_GetTokenInfo(slots[i], &token));
        if (strncmp((char *)token.label, label, strlen(label))) continue;
        slot = slots[i];
        needs_login = (token.flags & CKF_LOGIN_REQUIRED) != 0;
    }
}

static CK_SESSION_HANDLE session_with_login(void) {
    CK_SESSION_HANDLE session;
    check("C_OpenSession", functions->C_OpenSession(slot, CKF_SERIAL_SESSION, NULL, NULL, &session));
    if (!needs_login) return session;
    CK_RV result = functions->C_Login(session, CKU_USER, (unsigned char *)pin, strlen(pin));
    if (result != CKR_USER_ALREADY_LOGGED_IN) check("C_Login", result);
    return session;
}

static void *sign(void *context) {
    (void)context;
    CK_SESSION_HANDLE session = session_with_login();
    CK_OBJECT_CLASS class = CKO_PRIVATE_KEY;
    CK_ATTRIBUTE attribute = {CKA_CLASS, &class, sizeof class};
    CK_OBJECT_HANDLE key;
    unsigned long count = 0;
    check("C_FindObjectsInit", functions->C_FindObjectsInit(session, &attribute, 1));
    check("C_FindObjects", functions->C_FindObjects(session, &key, 1, &count));
    check("C_FindObjectsFinal", functions->C_FindObjectsFinal(session));
    if (count != 1) exit(1);
    unsigned char digest[32] = {1};
    CK_MECHANISM mechanism = {CKM_ECDSA, NULL, 0};
    long done = 0;
    do {
        unsigned char signature[256];
        unsigned long size = sizeof signature;
        check("C_SignInit", functions->C_SignInit(session, &mechanism, key));
        check("C_Sign", functions->C_Sign(session, digest, sizeof digest, signature, &size));
        done++;
    } while (!atomic_load_explicit(&over, memory_order_relaxed));
    atomic_fetch_add(&total, done);
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 6) return 64;
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return 1;
    CK_RV (*list)(CK_FUNCTION_LIST **) = (CK_RV (*)(CK_FUNCTION_LIST **))dlsym(library, "C_GetFunctionList");
    if (!list) return 1;
    check("C_GetFunctionList", list(&functions));
    pin = arguments[3];
    load(arguments[2]);
    if (!strcmp(arguments[4], "connections")) {
        over = 1;
        for (long left = atol(arguments[5]); left > 0; left--) {
            sign(NULL);
            check("C_Finalize", functions->C_Finalize(NULL));
            if (left > 1) load(arguments[2]);
        }
        return 0;
    }
    CK_SESSION_HANDLE held = session_with_login();
    (void)held;
    int threads = atoi(arguments[4]);
    pthread_t ids[64];
    if (threads < 1 || threads > 64) return 64;
    if (count > 6) {
        puts("ready");
        fflush(stdout);
        getchar();
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, sign, NULL);
    struct timespec length = {atoi(arguments[5]), 0};
    nanosleep(&length, NULL);
    atomic_store(&over, 1);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    printf("signatures-per-second %.1f\n", (double)total / seconds);
    return 0;
}
