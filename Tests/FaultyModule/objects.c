#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

int is_visible(const struct token *token, const struct object *object) {
    if (object->is_gone) return 0;
    if (token->is_logged_in || (token->concealed & CKF_LOGIN_REQUIRED)) return 1;
    if (object->class == CKO_PRIVATE_KEY) return token->shows_keys;
    return object->class != CKO_CERTIFICATE || !token->hides_certificates;
}

/// Where an attribute's value is; NULL when the object has none.
static const void *value_of(
    const struct object *object, CK_ATTRIBUTE_TYPE type, CK_ULONG *scratch, unsigned long *count) {
    static const CK_BBOOL yes = CK_TRUE;
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
    case CKA_SIGN: return is_key ? &yes : NULL;
    case CKA_ALWAYS_AUTHENTICATE: return is_key ? &object->asks_each_time : NULL;
    case CKA_LABEL: *count = 8; return "identity";
    case CKA_VALUE: *count = object->value_count; return object->class == CKO_PUBLIC_KEY ? NULL : object->value;
    case CKA_EC_POINT: *count = object->value_count; return object->class == CKO_PUBLIC_KEY ? object->value : NULL;
    case CKA_SUBJECT: *count = object->subject_count; return object->subject;
    case CKA_MODULUS: *count = object->modulus_count; return object->modulus;
    default: return NULL;
    }
}

CK_RV read_attribute(const struct object *object, CK_ATTRIBUTE *attribute) {
    CK_ULONG scratch;
    unsigned long count;
    const void *value = value_of(object, attribute->type, &scratch, &count);
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

int matches(const struct object *object, const CK_ATTRIBUTE *attributes, CK_ULONG attribute_count) {
    for (CK_ULONG index = 0; index < attribute_count; index++) {
        CK_ULONG scratch;
        unsigned long count;
        const void *value = value_of(object, attributes[index].type, &scratch, &count);
        if (value == NULL || count != attributes[index].ulValueLen) return 0;
        if (memcmp(value, attributes[index].pValue, count) != 0) return 0;
    }
    return 1;
}

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

CK_RV sign(
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
