#include <stdlib.h>
#include <string.h>

#include "calls.h"

struct token *token_in(CK_SLOT_ID slot, CK_RV *result) {
    if (slot < state.first_slot || slot >= state.first_slot + SLOTS) {
        *result = CKR_SLOT_ID_INVALID;
        return NULL;
    }
    int token = state.slots[slot - state.first_slot];
    if (token < 0) *result = CKR_TOKEN_NOT_PRESENT;
    return token < 0 ? NULL : &state.tokens[token];
}

struct session *take_session(CK_SESSION_HANDLE handle, CK_RV *result) {
    if (handle == 0 || handle > SESSIONS || !state.sessions[handle - 1].is_open) {
        *result = CKR_SESSION_HANDLE_INVALID;
        return NULL;
    }
    struct session *session = &state.sessions[handle - 1];
    if (session->is_used) {
        state.shared_uses++;
        *result = CKR_OPERATION_ACTIVE;
        return NULL;
    }
    session->is_used = 1;
    return session;
}

void give_back(struct session *session) { session->is_used = 0; }

struct token *token_of(const struct session *session) { return &state.tokens[state.slots[session->slot]]; }

void close_session(struct session *session) {
    unsigned slot = session->slot;
    int token = state.slots[slot];
    free(session->found);
    // A call that is in the middle of it finds it closed, and it is not given away while that goes on.
    *session = (struct session){.slot = slot};
    for (unsigned index = 0; index < SESSIONS; index++) {
        if (state.sessions[index].is_open && state.sessions[index].slot == slot) return;
    }
    // Closing the last session logs out (PKCS#11, section 5.6).
    if (token >= 0) state.tokens[token].is_logged_in = 0;
}

void close_sessions(unsigned slot) {
    for (unsigned index = 0; index < SESSIONS; index++) {
        struct session *session = &state.sessions[index];
        if (session->is_open && session->slot == slot) close_session(session);
    }
}

unsigned open_sessions(void) {
    unsigned count = 0;
    for (unsigned index = 0; index < SESSIONS; index++) count += (unsigned)state.sessions[index].is_open;
    return count;
}

unsigned sessions_in(CK_SLOT_ID id) {
    unsigned count = 0;
    for (unsigned index = 0; index < SESSIONS; index++) {
        const struct session *session = &state.sessions[index];
        count += session->is_open && session->slot == (unsigned)(id - state.first_slot);
    }
    return count;
}

static CK_RV open_session(
    CK_SLOT_ID id, CK_FLAGS flags, void *application, CK_NOTIFY notify, CK_SESSION_HANDLE *handle) {
    (void)application, (void)notify;
    BEGIN("C_OpenSession");
    const struct token *token = token_in(id, &result);
    if (token == NULL) goto end;
    if (open_sessions() >= token->available_sessions || open_sessions() >= SESSIONS) {
        result = CKR_SESSION_COUNT;
        goto end;
    }
    // The lowest number that is free: what a closed session had, the next one gets.
    unsigned index = 0;
    while (state.sessions[index].is_open) index++;
    state.sessions[index] =
        (struct session){.is_open = 1, .slot = (unsigned)(id - state.first_slot), .opening = ++state.openings,
            .writes = (flags & CKF_RW_SESSION) != 0};
    if (open_sessions() > state.most_sessions) state.most_sessions = open_sessions();
    *handle = index + 1;
    END;
}

static CK_RV close_one(CK_SESSION_HANDLE handle) {
    BEGIN("C_CloseSession");
    struct session *session = take_session(handle, &result);
    if (session) close_session(session);
    END;
}

static CK_RV close_all(CK_SLOT_ID id) {
    BEGIN("C_CloseAllSessions");
    if (token_in(id, &result)) close_sessions((unsigned)(id - state.first_slot));
    END;
}

static CK_RV get_session_info(CK_SESSION_HANDLE handle, CK_SESSION_INFO *info) {
    BEGIN_IN_SESSION("C_GetSessionInfo");
    *info = (CK_SESSION_INFO){.slotID = state.first_slot + session->slot, .flags = CKF_SERIAL_SESSION,
        .state = token_of(session)->is_logged_in ? CKS_RO_USER_FUNCTIONS : CKS_RO_PUBLIC_SESSION};
    END_IN_SESSION;
}

static CK_RV log_in(CK_SESSION_HANDLE handle, CK_USER_TYPE user, unsigned char *pin, CK_ULONG count) {
    if (pin) {
        pthread_mutex_lock(&state.lock);
        count_pin();
        pthread_mutex_unlock(&state.lock);
    }
    BEGIN_IN_SESSION("C_Login");
    struct token *token = token_of(session);
    int has_pad = (token->reported & CKF_PROTECTED_AUTHENTICATION_PATH) != 0;
    int is_right = pin ? count == strlen(token->pin) && memcmp(pin, token->pin, count) == 0 : has_pad;
    if (user == CKU_CONTEXT_SPECIFIC && !(session->key && session->key->asks_each_time)) {
        result = CKR_OPERATION_NOT_INITIALIZED;
    } else if (user != CKU_CONTEXT_SPECIFIC && token->is_logged_in) {
        result = CKR_USER_ALREADY_LOGGED_IN;
    } else if (token->tries == 0) {
        result = CKR_PIN_LOCKED;
    } else if (!is_right) {
        token->tries--;
        result = CKR_PIN_INCORRECT;
    } else {
        token->tries = TRIES;
        token->is_logged_in = 1;
        session->is_confirmed = user == CKU_CONTEXT_SPECIFIC;
        state.confirmations += user == CKU_CONTEXT_SPECIFIC;
    }
    END_IN_SESSION;
}

static CK_RV log_out(CK_SESSION_HANDLE handle) {
    BEGIN_IN_SESSION("C_Logout");
    if (!token_of(session)->is_logged_in) result = CKR_USER_NOT_LOGGED_IN;
    token_of(session)->is_logged_in = 0;
    END_IN_SESSION;
}

void list_session_calls(CK_FUNCTION_LIST *list) {
    list->C_OpenSession = open_session;
    list->C_CloseSession = close_one;
    list->C_CloseAllSessions = close_all;
    list->C_GetSessionInfo = get_session_info;
    list->C_Login = log_in;
    list->C_Logout = log_out;
}
