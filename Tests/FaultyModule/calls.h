#ifndef FAULTY_MODULE_CALLS_H
#define FAULTY_MODULE_CALLS_H

#include "state.h"

/// Opens a function of the module: its name, and the faults that a test has set.
#define BEGIN(name)                                  \
    const char *const function = name;               \
    come_in();                                       \
    pthread_mutex_lock(&state.lock);                 \
    CK_RV result = enter(function);                  \
    if (result != CKR_OK) goto end
#define END                                          \
    end:                                             \
    result = leave(function, result);                \
    pthread_mutex_unlock(&state.lock);               \
    go_out();                                        \
    return result
/// The same in the session of the parameter `handle`, which no other call may use meanwhile.
#define BEGIN_IN_SESSION(name)                                       \
    BEGIN(name);                                                     \
    struct session *session = take_session(handle, &result);         \
    if (session == NULL) goto end
#define END_IN_SESSION                               \
    give_back(session);                              \
    END

/// Put the functions of PKCS#11 that a file has into the module's list.
void list_session_calls(CK_FUNCTION_LIST *list);
void list_object_calls(CK_FUNCTION_LIST *list);
void list_signing_calls(CK_FUNCTION_LIST *list);
void list_decrypting_calls(CK_FUNCTION_LIST *list);

#endif
