#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/rsa.h>
#include <string.h>

#include "calls.h"

/// r‖s (PKCS#11, section 2.3.1) of a DER signature, each of `half` bytes.
static CK_RV split(
    const unsigned char *der, size_t der_count, int half, CK_BYTE *signature, CK_ULONG *count) {
    ECDSA_SIG *parts = d2i_ECDSA_SIG(NULL, &der, (long)der_count);
    if (parts == NULL) return CKR_GENERAL_ERROR;
    int is_good = *count >= 2 * (CK_ULONG)half && BN_bn2binpad(ECDSA_SIG_get0_r(parts), signature, half) == half
        && BN_bn2binpad(ECDSA_SIG_get0_s(parts), signature + half, half) == half;
    ECDSA_SIG_free(parts);
    *count = 2 * (CK_ULONG)half;
    return is_good ? CKR_OK : CKR_BUFFER_TOO_SMALL;
}

static int prepare(EVP_PKEY_CTX *context, const struct session *session) {
    if (EVP_PKEY_sign_init(context) != 1) return 0;
    switch (session->mechanism) {
    case CKM_ECDSA: return 1;
    case CKM_RSA_PKCS: return EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PADDING) == 1;
    case CKM_RSA_X_509: return EVP_PKEY_CTX_set_rsa_padding(context, RSA_NO_PADDING) == 1;
    case CKM_RSA_PKCS_PSS: {
        const EVP_MD *hash = session->hash == CKM_SHA256 ? EVP_sha256()
            : session->hash == CKM_SHA384                ? EVP_sha384()
                                                         : EVP_sha512();
        return EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PSS_PADDING) == 1
            && EVP_PKEY_CTX_set_signature_md(context, hash) == 1
            && EVP_PKEY_CTX_set_rsa_pss_saltlen(context, RSA_PSS_SALTLEN_DIGEST) == 1;
    }
    default: return 0;
    }
}

static CK_RV sign(
    const struct session *session, CK_BYTE *data, CK_ULONG data_count, CK_BYTE *signature, CK_ULONG *count) {
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(session->key->key, NULL);
    unsigned char result[1024];
    size_t result_count = sizeof result;
    int is_signed = context && prepare(context, session)
        && EVP_PKEY_sign(context, result, &result_count, data, data_count) == 1;
    EVP_PKEY_CTX_free(context);
    if (!is_signed) return CKR_FUNCTION_FAILED;
    if (session->mechanism == CKM_ECDSA) {
        int half = (EVP_PKEY_get_bits(session->key->key) + 7) / 8;
        return split(result, result_count, half, signature, count);
    }
    if (result_count > *count) return CKR_BUFFER_TOO_SMALL;
    memcpy(signature, result, result_count);
    *count = result_count;
    return CKR_OK;
}

static CK_RV sign_init(CK_SESSION_HANDLE handle, CK_MECHANISM *mechanism, CK_OBJECT_HANDLE number) {
    BEGIN_IN_SESSION("C_SignInit");
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
    END_IN_SESSION;
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
    } else if (token_of(&taken)->refusal != CKR_OK) {
        result = token_of(&taken)->refusal;
        if (result == CKR_USER_NOT_LOGGED_IN) token_of(&taken)->is_logged_in = 0;
    } else if (token_of(&taken)->demands_login && !token_of(&taken)->is_logged_in) {
        result = CKR_USER_NOT_LOGGED_IN;
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

void list_signing_calls(CK_FUNCTION_LIST *list) {
    list->C_SignInit = sign_init;
    list->C_Sign = sign_data;
}
