#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    state.is_initialized = 1;
    END;
}

static CK_RV finalize_now(void) {
    BEGIN("C_Finalize");
    for (unsigned slot = 0; slot < SLOTS; slot++) close_sessions(slot);
    state.is_initialized = 0;
    END;
}

static CK_RV finalize(void *reserved) {
    (void)reserved;
    CK_RV result = finalize_now();
    end_slowly();
    return result;
}

static void pad(unsigned char *field, size_t size, const char *text) {
    memset(field, ' ', size);
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

static CK_RV get_slot_list(CK_BBOOL only_with_token, CK_SLOT_ID *slots, CK_ULONG *count) {
    BEGIN("C_GetSlotList");
    if (!state.is_initialized) {
        result = CKR_CRYPTOKI_NOT_INITIALIZED;
        goto end;
    }
    CK_ULONG needed = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
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
    info->flags = CKF_REMOVABLE_DEVICE | (state.slots[id - state.first_slot] >= 0 ? CKF_TOKEN_PRESENT : 0);
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
    info->ulSessionCount = info->ulMaxRwSessionCount = info->ulRwSessionCount = CK_UNAVAILABLE_INFORMATION;
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
    BEGIN("C_GetSessionInfo");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    *info = (CK_SESSION_INFO){.slotID = state.first_slot + session->slot, .flags = CKF_SERIAL_SESSION,
        .state = token_of(session)->is_logged_in ? CKS_RO_USER_FUNCTIONS : CKS_RO_PUBLIC_SESSION};
    give_back(session);
    END;
}

static CK_RV log_in(CK_SESSION_HANDLE handle, CK_USER_TYPE user, unsigned char *pin, CK_ULONG count) {
    if (pin) {
        pthread_mutex_lock(&state.lock);
        count_pin();
        pthread_mutex_unlock(&state.lock);
    }
    BEGIN("C_Login");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
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
    give_back(session);
    END;
}

static CK_RV log_out(CK_SESSION_HANDLE handle) {
    BEGIN("C_Logout");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    if (!token_of(session)->is_logged_in) result = CKR_USER_NOT_LOGGED_IN;
    token_of(session)->is_logged_in = 0;
    give_back(session);
    END;
}

static CK_RV find_init(CK_SESSION_HANDLE handle, CK_ATTRIBUTE *attributes, CK_ULONG count) {
    BEGIN("C_FindObjectsInit");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    const struct token *token = token_of(session);
    free(session->found);
    session->found = malloc((token->object_count + 1) * sizeof *session->found);
    session->found_count = session->found_next = 0;
    for (unsigned long index = 0; index < token->object_count; index++) {
        const struct object *object = &token->objects[index];
        if (!is_visible(token, object) || !matches(object, attributes, count)) continue;
        session->found[session->found_count++] = index + 1;
    }
    give_back(session);
    END;
}

static CK_RV find(CK_SESSION_HANDLE handle, CK_OBJECT_HANDLE *objects, CK_ULONG room, CK_ULONG *count) {
    BEGIN("C_FindObjects");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    for (*count = 0; *count < room && session->found_next < session->found_count; (*count)++) {
        objects[*count] = session->found[session->found_next++];
        if (token_of(session)->repeats_objects) session->found_next %= session->found_count;
    }
    give_back(session);
    END;
}

static CK_RV find_final(CK_SESSION_HANDLE handle) {
    BEGIN("C_FindObjectsFinal");
    struct session *session = take_session(handle, &result);
    if (session) give_back(session);
    END;
}

static CK_RV get_attributes(
    CK_SESSION_HANDLE handle, CK_OBJECT_HANDLE number, CK_ATTRIBUTE *attributes, CK_ULONG count) {
    BEGIN("C_GetAttributeValue");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    const struct token *token = token_of(session);
    if (number == 0 || number > token->object_count || !is_visible(token, &token->objects[number - 1])) {
        result = CKR_OBJECT_HANDLE_INVALID;
    } else {
        for (CK_ULONG index = 0; index < count; index++) {
            CK_RV one = read_attribute(&token->objects[number - 1], &attributes[index]);
            if (one != CKR_OK) result = one;
        }
    }
    give_back(session);
    END;
}

/// Takes certificates only.
static CK_RV create_object(
    CK_SESSION_HANDLE handle, CK_ATTRIBUTE *attributes, CK_ULONG count, CK_OBJECT_HANDLE *object) {
    BEGIN("C_CreateObject");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    if (!session->writes) {
        result = CKR_SESSION_READ_ONLY;
    } else {
        struct id id = {.count = 0};
        const CK_ATTRIBUTE *value = NULL;
        for (CK_ULONG index = 0; index < count; index++) {
            const CK_ATTRIBUTE *attribute = &attributes[index];
            if (attribute->type == CKA_VALUE) value = attribute;
            if (attribute->type != CKA_ID || attribute->ulValueLen > sizeof id.bytes) continue;
            id.count = attribute->ulValueLen;
            memcpy(id.bytes, attribute->pValue, id.count);
        }
        *object = value ? append_certificate(token_of(session), id, value->pValue, value->ulValueLen) : 0;
        if (*object == 0) result = CKR_TEMPLATE_INCONSISTENT;
    }
    give_back(session);
    END;
}

static CK_RV destroy_object(CK_SESSION_HANDLE handle, CK_OBJECT_HANDLE number) {
    BEGIN("C_DestroyObject");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    struct token *token = token_of(session);
    if (!session->writes) {
        result = CKR_SESSION_READ_ONLY;
    } else if (number == 0 || number > token->object_count || !is_visible(token, &token->objects[number - 1])) {
        result = CKR_OBJECT_HANDLE_INVALID;
    } else {
        token->objects[number - 1].is_gone = 1;
        token->gone_count++;
    }
    give_back(session);
    END;
}

static CK_RV sign_init(CK_SESSION_HANDLE handle, CK_MECHANISM *mechanism, CK_OBJECT_HANDLE number) {
    BEGIN("C_SignInit");
    struct session *session = take_session(handle, &result);
    if (session == NULL) goto end;
    const struct token *token = token_of(session);
    if (session->key) {
        result = CKR_OPERATION_ACTIVE;
    } else if (number == 0 || number > token->object_count || !is_visible(token, &token->objects[number - 1])
        || token->objects[number - 1].class != CKO_PRIVATE_KEY) {
        result = CKR_KEY_HANDLE_INVALID;
    } else {
        session->key = &token->objects[number - 1];
        session->mechanism = mechanism->mechanism;
        session->hash = mechanism->mechanism == CKM_RSA_PKCS_PSS
            ? ((const CK_RSA_PKCS_PSS_PARAMS *)mechanism->pParameter)->hashAlg : 0;
        session->is_confirmed = 0;
    }
    give_back(session);
    END;
}

/// Computes without the lock: only so can two calls be in one session.
static CK_RV sign_data(
    CK_SESSION_HANDLE handle, CK_BYTE *data, CK_ULONG data_count, CK_BYTE *signature, CK_ULONG *count) {
    come_in();
    pthread_mutex_lock(&state.lock);
    const char *const function = "C_Sign";
    CK_RV result = CKR_OK;
    // Taken before the call can be held: a session in use is a session in use.
    struct session *session = take_session(handle, &result);
    const unsigned long opening = session ? session->opening : 0;
    CK_RV fault = enter(function);
    if (session == NULL) goto end;
    struct session taken = *session;
    if (fault != CKR_OK) {
        result = fault;
    } else if (taken.opening != opening) {
        result = CKR_DEVICE_REMOVED;
    } else if (taken.key == NULL) {
        result = CKR_OPERATION_NOT_INITIALIZED;
    } else if (taken.key->asks_each_time && !taken.is_confirmed) {
        result = CKR_USER_NOT_LOGGED_IN;
    } else {
        pthread_mutex_unlock(&state.lock);
        result = sign(&taken, data, data_count, signature, count);
        pthread_mutex_lock(&state.lock);
    }
    if (session->opening == opening) {
        // A signature ends the operation, whatever comes of it.
        session->key = NULL;
        give_back(session);
    }
    END;
}

static CK_FUNCTION_LIST list;

CK_RV C_GetFunctionList(CK_FUNCTION_LIST **functions) {
    list = (CK_FUNCTION_LIST){.version = {2, 40}, .C_Initialize = initialize, .C_Finalize = finalize,
        .C_GetInfo = get_info, .C_GetFunctionList = C_GetFunctionList, .C_GetSlotList = get_slot_list,
        .C_GetSlotInfo = get_slot_info, .C_GetTokenInfo = get_token_info, .C_GetMechanismList = get_mechanism_list,
        .C_GetMechanismInfo = get_mechanism_info, .C_OpenSession = open_session, .C_CloseSession = close_one,
        .C_CloseAllSessions = close_all, .C_GetSessionInfo = get_session_info, .C_Login = log_in, .C_Logout = log_out,
        .C_FindObjectsInit = find_init, .C_FindObjects = find,
        .C_FindObjectsFinal = find_final, .C_GetAttributeValue = get_attributes, .C_CreateObject = create_object,
        .C_DestroyObject = destroy_object,
        .C_SignInit = sign_init, .C_Sign = sign_data};
    *functions = &list;
    return CKR_OK;
}
