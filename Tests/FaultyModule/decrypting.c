#include <openssl/rsa.h>

#include "calls.h"

static int prepare(EVP_PKEY_CTX *context, const struct session *session) {
    if (EVP_PKEY_decrypt_init(context) != 1) return 0;
    if (session->mechanism == CKM_RSA_PKCS) return EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_PADDING) == 1;
    const EVP_MD *hash = session->hash == CKM_SHA256 ? EVP_sha256() : EVP_sha1();
    return EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_OAEP_PADDING) == 1
        && EVP_PKEY_CTX_set_rsa_oaep_md(context, hash) == 1 && EVP_PKEY_CTX_set_rsa_mgf1_md(context, hash) == 1;
}

static CK_RV decrypt_init(CK_SESSION_HANDLE handle, CK_MECHANISM *mechanism, CK_OBJECT_HANDLE number) {
    BEGIN_IN_SESSION("C_DecryptInit");
    const struct token *token = token_of(session);
    if (session->key) {
        result = CKR_OPERATION_ACTIVE;
    } else if (number == 0 || number > token->object_count || !is_visible(token, &token->objects[number - 1])) {
        result = CKR_KEY_HANDLE_INVALID;
    } else {
        session->key = &token->objects[number - 1];
        session->mechanism = mechanism->mechanism;
        if (mechanism->mechanism == CKM_RSA_PKCS_OAEP) {
            const CK_RSA_PKCS_OAEP_PARAMS *parameters = mechanism->pParameter;
            session->hash = token->only_hash ? token->only_hash : parameters->hashAlg;
        }
        session->is_confirmed = 0;
    }
    END_IN_SESSION;
}

static CK_RV decrypt(CK_SESSION_HANDLE handle, CK_BYTE *data, CK_ULONG data_count, CK_BYTE *plain, CK_ULONG *count) {
    BEGIN_IN_SESSION("C_Decrypt");
    if (session->key == NULL) {
        result = CKR_OPERATION_NOT_INITIALIZED;
    } else if (session->key->asks_each_time && !session->is_confirmed) {
        result = CKR_USER_NOT_LOGGED_IN;
    } else {
        EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(session->key->key, NULL);
        size_t plain_count = *count;
        result = context && prepare(context, session)
                && EVP_PKEY_decrypt(context, plain, &plain_count, data, data_count) == 1
            ? CKR_OK : CKR_GENERAL_ERROR;
        EVP_PKEY_CTX_free(context);
        *count = plain_count;
    }
    session->key = NULL;
    END_IN_SESSION;
}

void list_decrypting_calls(CK_FUNCTION_LIST *list) {
    list->C_DecryptInit = decrypt_init;
    list->C_Decrypt = decrypt;
}
