#include <stdlib.h>
#include <string.h>

#include "calls.h"

int is_visible(const struct token *token, const struct object *object) {
    if (object->is_gone || object->is_new) return 0;
    if (token->is_logged_in || (token->concealed & CKF_LOGIN_REQUIRED)) return 1;
    if (object->class == CKO_PRIVATE_KEY) return token->shows_keys || token->has_public_keys;
    return object->class != CKO_CERTIFICATE || !token->hides_certificates;
}

/// Where an attribute's value is; NULL when the object has none.
static const void *value_of(
    const struct token *token, const struct object *object, CK_ATTRIBUTE_TYPE type, CK_ULONG *scratch, unsigned long *count) {
    static const CK_BBOOL yes = CK_TRUE, no = CK_FALSE;
    int is_key = object->class == CKO_PRIVATE_KEY;
    *count = sizeof(CK_ULONG);
    switch (type) {
    case CKA_CLASS: *scratch = object->class; return scratch;
    case CKA_KEY_TYPE:
        *scratch = is_key && EVP_PKEY_is_a(object->key, "RSA") ? CKK_RSA : CKK_EC;
        return object->class == CKO_CERTIFICATE ? NULL : scratch;
    case CKA_CERTIFICATE_TYPE: *scratch = CKC_X_509; return object->class == CKO_CERTIFICATE ? scratch : NULL;
    default: break;
    }
    *count = 1;
    switch (type) {
    case CKA_ID: *count = object->id.count; return object->id.bytes;
    case CKA_TOKEN: return &yes;
    case CKA_PRIVATE: return is_key && !token->has_public_keys ? &yes : &no;
    case CKA_SIGN:
    case CKA_DECRYPT: return is_key ? &yes : NULL;
    case CKA_ALWAYS_AUTHENTICATE: return is_key ? &object->asks_each_time : NULL;
    case CKA_LABEL: *count = 8; return "identity";
    case CKA_VALUE: *count = object->value_count; return object->class == CKO_PUBLIC_KEY ? NULL : object->value;
    case CKA_EC_POINT: *count = object->value_count; return object->class == CKO_PUBLIC_KEY ? object->value : NULL;
    case CKA_SUBJECT: *count = object->subject_count; return object->subject;
    case CKA_MODULUS: *count = object->modulus_count; return object->modulus;
    default: return NULL;
    }
}

static CK_RV read_attribute(const struct token *token, const struct object *object, CK_ATTRIBUTE *attribute) {
    CK_ULONG scratch;
    unsigned long count;
    const void *value = value_of(token, object, attribute->type, &scratch, &count);
    if (value == NULL) {
        attribute->ulValueLen = CK_UNAVAILABLE_INFORMATION;
        return CKR_ATTRIBUTE_TYPE_INVALID;
    }
    int is_distorted = attribute->type == state.distortion.type;
    if (attribute->pValue == NULL) {
        attribute->ulValueLen = is_distorted ? state.distortion.asked : count;
        return CKR_OK;
    }
    // Never more than there is room for: the length may lie, but this process must survive it.
    memcpy(attribute->pValue, value, count < attribute->ulValueLen ? count : attribute->ulValueLen);
    if (is_distorted) {
        attribute->ulValueLen = state.distortion.read;
        return CKR_OK;
    }
    CK_RV result = count <= attribute->ulValueLen ? CKR_OK : CKR_BUFFER_TOO_SMALL;
    attribute->ulValueLen = result == CKR_OK ? count : CK_UNAVAILABLE_INFORMATION;
    return result;
}

static int matches(
    const struct token *token, const struct object *object, const CK_ATTRIBUTE *attributes, CK_ULONG attribute_count) {
    for (CK_ULONG index = 0; index < attribute_count; index++) {
        CK_ULONG scratch;
        unsigned long count;
        const void *value = value_of(token, object, attributes[index].type, &scratch, &count);
        if (value == NULL || count != attributes[index].ulValueLen) return 0;
        if (memcmp(value, attributes[index].pValue, count) != 0) return 0;
    }
    return 1;
}

static CK_RV find_init(CK_SESSION_HANDLE handle, CK_ATTRIBUTE *attributes, CK_ULONG count) {
    BEGIN_IN_SESSION("C_FindObjectsInit");
    const struct token *token = token_of(session);
    free(session->found);
    session->found = malloc((token->object_count + 1) * sizeof *session->found);
    session->found_count = session->found_next = 0;
    for (unsigned long index = 0; index < token->object_count; index++) {
        const struct object *object = &token->objects[index];
        if (!is_visible(token, object) || !matches(token, object, attributes, count)) continue;
        session->found[session->found_count++] = index + 1;
    }
    END_IN_SESSION;
}

static CK_RV find(CK_SESSION_HANDLE handle, CK_OBJECT_HANDLE *objects, CK_ULONG room, CK_ULONG *count) {
    BEGIN_IN_SESSION("C_FindObjects");
    for (*count = 0; *count < room && session->found_next < session->found_count; (*count)++) {
        objects[*count] = session->found[session->found_next++];
        if (token_of(session)->repeats_objects) session->found_next %= session->found_count;
    }
    END_IN_SESSION;
}

static CK_RV find_final(CK_SESSION_HANDLE handle) {
    BEGIN("C_FindObjectsFinal");
    struct session *session = take_session(handle, &result);
    if (session) give_back(session);
    END;
}

static CK_RV get_attributes(
    CK_SESSION_HANDLE handle, CK_OBJECT_HANDLE number, CK_ATTRIBUTE *attributes, CK_ULONG count) {
    BEGIN_IN_SESSION("C_GetAttributeValue");
    const struct token *token = token_of(session);
    if (number == 0 || number > token->object_count || !is_visible(token, &token->objects[number - 1])) {
        result = CKR_OBJECT_HANDLE_INVALID;
    } else {
        for (CK_ULONG index = 0; index < count; index++) {
            CK_RV one = read_attribute(token, &token->objects[number - 1], &attributes[index]);
            if (one != CKR_OK) result = one;
        }
    }
    END_IN_SESSION;
}

/// Takes certificates only.
static CK_RV create_object(
    CK_SESSION_HANDLE handle, CK_ATTRIBUTE *attributes, CK_ULONG count, CK_OBJECT_HANDLE *object) {
    BEGIN_IN_SESSION("C_CreateObject");
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
    END_IN_SESSION;
}

static CK_RV destroy_object(CK_SESSION_HANDLE handle, CK_OBJECT_HANDLE number) {
    BEGIN_IN_SESSION("C_DestroyObject");
    struct token *token = token_of(session);
    if (!session->writes) {
        result = CKR_SESSION_READ_ONLY;
    } else if (number == 0 || number > token->object_count || !is_visible(token, &token->objects[number - 1])) {
        result = CKR_OBJECT_HANDLE_INVALID;
    } else {
        token->objects[number - 1].is_gone = 1;
        token->gone_count++;
    }
    END_IN_SESSION;
}

void list_object_calls(CK_FUNCTION_LIST *list) {
    list->C_FindObjectsInit = find_init;
    list->C_FindObjects = find;
    list->C_FindObjectsFinal = find_final;
    list->C_GetAttributeValue = get_attributes;
    list->C_CreateObject = create_object;
    list->C_DestroyObject = destroy_object;
}
