/* token-contents [PIN]: what p11-kit's module 'token' says of its token 'host'.

   First the names of its flags about PINs, in one line. With a PIN, then a line for each object: its class, its id, and for
   a private key what it may be used for and whether it may leave. */
#include <p11-kit/p11-kit.h>
#include <p11-kit/pkcs11.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CK_FUNCTION_LIST *module;
static CK_SESSION_HANDLE session;

static void check(const char *function, CK_RV result)
{
    if (result == CKR_OK)
        return;
    fprintf(stderr, "%s: 0x%lx\n", function, result);
    exit(1);
}

static int is(CK_OBJECT_HANDLE object, CK_ATTRIBUTE_TYPE type)
{
    CK_BBOOL value = CK_FALSE;
    CK_ATTRIBUTE attribute = {type, &value, sizeof value};
    return module->C_GetAttributeValue(session, object, &attribute, 1) == CKR_OK && value;
}

static void print(CK_OBJECT_HANDLE object)
{
    static const struct { CK_ATTRIBUTE_TYPE type; const char *name; } uses[] = {
        {CKA_SIGN, "sign"}, {CKA_SIGN_RECOVER, "sign-recover"}, {CKA_DECRYPT, "decrypt"}, {CKA_UNWRAP, "unwrap"},
        {CKA_DERIVE, "derive"}, {CKA_EXTRACTABLE, "extractable"}, {CKA_SENSITIVE, "sensitive"}};
    CK_OBJECT_CLASS kind = 0;
    unsigned char id[256];
    CK_ATTRIBUTE attributes[] = {{CKA_CLASS, &kind, sizeof kind}, {CKA_ID, id, sizeof id}};
    check("C_GetAttributeValue", module->C_GetAttributeValue(session, object, &attributes[0], 1));
    if (kind != CKO_PRIVATE_KEY && kind != CKO_PUBLIC_KEY && kind != CKO_CERTIFICATE)
        return;
    check("C_GetAttributeValue", module->C_GetAttributeValue(session, object, &attributes[1], 1));
    printf("%s ", kind == CKO_PRIVATE_KEY ? "private-key" : kind == CKO_PUBLIC_KEY ? "public-key" : "certificate");
    for (CK_ULONG i = 0; i < attributes[1].ulValueLen; i++)
        printf("%02x", id[i]);
    for (size_t i = 0; kind == CKO_PRIVATE_KEY && i < sizeof uses / sizeof *uses; i++)
        if (is(object, uses[i].type))
            printf(" %s", uses[i].name);
    printf("\n");
}

int main(int count, char **arguments)
{
    CK_FUNCTION_LIST **modules = p11_kit_modules_load_and_initialize(0);
    CK_SLOT_ID slots[64];
    CK_ULONG slot, number = 64;
    CK_TOKEN_INFO token;
    CK_OBJECT_HANDLE objects[256];

    module = modules ? p11_kit_module_for_name(modules, "token") : NULL;
    if (!module) {
        fprintf(stderr, "there is no module 'token'\n");
        return 1;
    }
    check("C_GetSlotList", module->C_GetSlotList(CK_TRUE, slots, &number));
    for (slot = 0; slot < number; slot++)
        if (module->C_GetTokenInfo(slots[slot], &token) == CKR_OK && !memcmp(token.label, "host ", 5))
            break;
    if (slot == number) {
        fprintf(stderr, "there is no token 'host'\n");
        return 1;
    }
    printf("flags%s%s%s\n", token.flags & CKF_USER_PIN_COUNT_LOW ? " COUNT_LOW" : "",
           token.flags & CKF_USER_PIN_FINAL_TRY ? " FINAL_TRY" : "", token.flags & CKF_USER_PIN_LOCKED ? " LOCKED" : "");
    if (count > 1) {
        CK_ULONG length = strlen(arguments[1]);
        check("C_OpenSession", module->C_OpenSession(slots[slot], CKF_SERIAL_SESSION, NULL, NULL, &session));
        check("C_Login", module->C_Login(session, CKU_USER, (unsigned char *)arguments[1], length));
        check("C_FindObjectsInit", module->C_FindObjectsInit(session, NULL, 0));
        check("C_FindObjects", module->C_FindObjects(session, objects, 256, &number));
        check("C_FindObjectsFinal", module->C_FindObjectsFinal(session));
        for (CK_ULONG i = 0; i < number; i++)
            print(objects[i]);
        module->C_Logout(session);
        module->C_CloseSession(session);
    }
    p11_kit_modules_finalize_and_release(modules);
    return 0;
}
