/* SoftHSM, but that it makes each private key extractable first, and writes it to a file: for the test that looks for the
 * key elsewhere. The file has the value's octets inverted, so that whoever reads it does not have the key in memory. */

#include <dlfcn.h>
#include <p11-kit/pkcs11.h>
#include <stdio.h>
#include <stdlib.h>

static CK_FUNCTION_LIST *softhsm;
static CK_FUNCTION_LIST functions;

static void write_inverted(CK_SESSION_HANDLE session, CK_OBJECT_HANDLE key, CK_ATTRIBUTE_TYPE type)
{
    unsigned char value[1024];
    CK_ATTRIBUTE attribute = {type, value, sizeof value};
    if (softhsm->C_GetAttributeValue(session, key, &attribute, 1) != CKR_OK) return;
    FILE *file = fopen(getenv("EXTRACTED_KEY"), "w");
    if (!file) return;
    for (CK_ULONG i = 0; i < attribute.ulValueLen; i++) fputc(value[i] ^ 0xff, file);
    fclose(file);
}

static CK_RV generate(CK_SESSION_HANDLE session, CK_MECHANISM *mechanism, CK_ATTRIBUTE *public_key, CK_ULONG public_count,
                      CK_ATTRIBUTE *private_key, CK_ULONG private_count, CK_OBJECT_HANDLE *made_public,
                      CK_OBJECT_HANDLE *made_private)
{
    CK_BBOOL yes = CK_TRUE, no = CK_FALSE;
    CK_ATTRIBUTE *changed = calloc(private_count, sizeof *changed);
    for (CK_ULONG i = 0; i < private_count; i++) {
        changed[i] = private_key[i];
        if (changed[i].type == CKA_EXTRACTABLE) changed[i].pValue = &yes;
        if (changed[i].type == CKA_SENSITIVE) changed[i].pValue = &no;
    }
    CK_RV result = softhsm->C_GenerateKeyPair(session, mechanism, public_key, public_count, changed, private_count,
                                              made_public, made_private);
    free(changed);
    if (result != CKR_OK) return result;
    write_inverted(session, *made_private,
                   mechanism->mechanism == CKM_RSA_PKCS_KEY_PAIR_GEN ? CKA_PRIVATE_EXPONENT : CKA_VALUE);
    CK_ATTRIBUTE closed[] = {{CKA_SENSITIVE, &yes, sizeof yes}, {CKA_EXTRACTABLE, &no, sizeof no}};
    return softhsm->C_SetAttributeValue(session, *made_private, closed, 2);
}

CK_RV C_GetFunctionList(CK_FUNCTION_LIST **list)
{
    if (!softhsm) {
        void *library = dlopen(getenv("EXTRACTED_MODULE"), RTLD_NOW);
        CK_RV (*get)(CK_FUNCTION_LIST **) = library ? (CK_RV (*)(CK_FUNCTION_LIST **))dlsym(library, "C_GetFunctionList") : NULL;
        if (!get || get(&softhsm) != CKR_OK) return CKR_GENERAL_ERROR;
        functions = *softhsm;
        functions.C_GenerateKeyPair = generate;
    }
    *list = &functions;
    return CKR_OK;
}
