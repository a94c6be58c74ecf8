#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

static CK_RV initialize(void *reserved) {
    const CK_C_INITIALIZE_ARGS *arguments = reserved;
    if (getenv("FAULTY_MODULE_NOISE")) {
        printf("noise on stdout\n");
        fflush(stdout);
        fprintf(stderr, "noise on stderr\n");
    }
    BEGIN("C_Initialize");
    if (state.cannot_lock && arguments && (arguments->CreateMutex || arguments->flags & CKF_OS_LOCKING_OK)) {
        result = CKR_CANT_LOCK;
        goto end;
    }
    if (state.mutex == NULL && arguments && arguments->CreateMutex && arguments->CreateMutex(&state.mutex) == CKR_OK) {
        state.lock_mutex = arguments->LockMutex;
        state.unlock_mutex = arguments->UnlockMutex;
    }
    state.is_initialized = 1;
    for (unsigned token = 0; token < TOKENS; token++) {
        for (unsigned long index = 0; index < state.tokens[token].object_count; index++) {
            state.tokens[token].objects[index].is_new = 0;
        }
    }
    END;
}

static CK_RV finalize_now(void) {
    BEGIN("C_Finalize");
    for (unsigned slot = 0; slot < SLOTS; slot++) close_sessions(slot);
    state.is_initialized = 0;
    mend();
    END;
}

static CK_RV finalize(void *reserved) {
    (void)reserved;
    CK_RV result = finalize_now();
    end_slowly();
    return result;
}

static void pad(unsigned char *field, size_t size, const char *text) {
    memset(field, state.pads_with_nuls ? 0 : ' ', size);
    memcpy(field, text, strlen(text) < size ? strlen(text) : size);
}

static CK_RV get_info(CK_INFO *info) {
    BEGIN("C_GetInfo");
    memset(info, 0, sizeof *info);
    info->cryptokiVersion = (CK_VERSION){2, 40};
    pad(info->manufacturerID, sizeof info->manufacturerID, "certprov");
    pad(info->libraryDescription, sizeof info->libraryDescription, "faulty");
    END;
}

/// Whether this is a module for PC/SC readers, by a variable: it loads the PC/SC library then, and has no readers.
static int is_for_readers(void) {
    return getenv("FAULTY_MODULE_PCSC") != NULL && dlopen("libpcsclite.so.1", RTLD_LAZY) != NULL;
}

static CK_RV get_slot_list(CK_BBOOL only_with_token, CK_SLOT_ID *slots, CK_ULONG *count) {
    BEGIN("C_GetSlotList");
    if (!state.is_initialized) {
        result = CKR_CRYPTOKI_NOT_INITIALIZED;
        goto end;
    }
    CK_ULONG needed = 0;
    for (unsigned slot = is_for_readers() ? SLOTS : 0; slot < SLOTS; slot++) {
        if (only_with_token && state.slots[slot] < 0) continue;
        if (slots && needed < *count) slots[needed] = state.first_slot + slot;
        needed++;
    }
    if (slots && (needed > *count || state.growth)) result = CKR_BUFFER_TOO_SMALL;
    *count = needed + state.growth;
    END;
}

static CK_RV get_slot_info(CK_SLOT_ID id, CK_SLOT_INFO *info) {
    BEGIN("C_GetSlotInfo");
    if (id < state.first_slot || id >= state.first_slot + SLOTS) {
        result = CKR_SLOT_ID_INVALID;
        goto end;
    }
    memset(info, 0, sizeof *info);
    pad(info->slotDescription, sizeof info->slotDescription, "reader");
    pad(info->manufacturerID, sizeof info->manufacturerID, "certprov");
    info->flags = (state.are_readers_fixed ? 0 : CKF_REMOVABLE_DEVICE) | (state.slots[id - state.first_slot] >= 0 ? CKF_TOKEN_PRESENT : 0);
    END;
}

static CK_RV get_token_info(CK_SLOT_ID id, CK_TOKEN_INFO *info) {
    BEGIN("C_GetTokenInfo");
    const struct token *token = token_in(id, &result);
    if (token == NULL) goto end;
    memset(info, 0, sizeof *info);
    pad(info->label, sizeof info->label, token->label);
    pad(info->serialNumber, sizeof info->serialNumber, token->serial);
    pad(info->manufacturerID, sizeof info->manufacturerID, "certprov");
    pad(info->model, sizeof info->model, "faulty");
    CK_FLAGS flags = CKF_TOKEN_INITIALIZED | CKF_LOGIN_REQUIRED | CKF_USER_PIN_INITIALIZED;
    if (token->tries < TRIES) flags |= CKF_USER_PIN_COUNT_LOW;
    if (token->tries == 1) flags |= CKF_USER_PIN_FINAL_TRY;
    if (token->tries == 0) flags |= CKF_USER_PIN_LOCKED;
    info->flags = (flags | token->reported) & ~token->concealed;
    info->ulMinPinLen = token->shortest_pin;
    info->ulMaxPinLen = token->longest_pin;
    info->ulMaxSessionCount = token->reported_sessions;
    info->ulSessionCount = sessions_in(id);
    info->ulMaxRwSessionCount = info->ulRwSessionCount = CK_UNAVAILABLE_INFORMATION;
    END;
}

static CK_RV get_mechanism_list(CK_SLOT_ID id, CK_MECHANISM_TYPE *list, CK_ULONG *count) {
    BEGIN("C_GetMechanismList");
    const struct token *token = token_in(id, &result);
    if (token == NULL) goto end;
    if (list && (*count < token->mechanism_count || state.growth)) result = CKR_BUFFER_TOO_SMALL;
    if (list && result == CKR_OK) memcpy(list, token->mechanisms, token->mechanism_count * sizeof *list);
    *count = token->mechanism_count + state.growth;
    END;
}

static CK_RV get_mechanism_info(CK_SLOT_ID id, CK_MECHANISM_TYPE mechanism, CK_MECHANISM_INFO *info) {
    BEGIN("C_GetMechanismInfo");
    const struct token *token = token_in(id, &result);
    if (token == NULL) goto end;
    result = CKR_MECHANISM_INVALID;
    for (unsigned index = 0; index < token->mechanism_count; index++) {
        if (token->mechanisms[index] != mechanism) continue;
        *info = token->mechanism_infos[index];
        result = CKR_OK;
    }
    END;
}

static CK_FUNCTION_LIST list;
static pthread_once_t listed = PTHREAD_ONCE_INIT;

static void make_list(void) {
    list = (CK_FUNCTION_LIST){.version = {2, 40}, .C_Initialize = initialize, .C_Finalize = finalize,
        .C_GetInfo = get_info, .C_GetFunctionList = C_GetFunctionList, .C_GetSlotList = get_slot_list,
        .C_GetSlotInfo = get_slot_info, .C_GetTokenInfo = get_token_info, .C_GetMechanismList = get_mechanism_list,
        .C_GetMechanismInfo = get_mechanism_info};
    list_session_calls(&list);
    list_object_calls(&list);
    list_signing_calls(&list);
    list_decrypting_calls(&list);
}

/// Once: p11-kit asks again while other threads call the functions.
CK_RV C_GetFunctionList(CK_FUNCTION_LIST **functions) {
    pthread_once(&listed, make_list);
    *functions = &list;
    return CKR_OK;
}
