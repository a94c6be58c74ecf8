#include <stdlib.h>

#include "state.h"

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
