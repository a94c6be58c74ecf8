/* Any PKCS#11 module, but that its logins fail, or its tokens warn, as the file $LOGIN_FAULTS/fault says:
 *
 *   flags NUMBER    these flags are set besides those of the token
 *   before NUMBER   the login is not made, and NUMBER is what comes of it
 *   after NUMBER    the login is made, and its answer is lost behind NUMBER
 *
 * Each login that is made leaves a line 'made' in $LOGIN_FAULTS/logins before it, as its process may not see the end of it,
 * and one 'wrong' where the token has rejected the PIN. */

#include <dlfcn.h>
#include <fcntl.h>
#include <p11-kit/pkcs11.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CK_FUNCTION_LIST *module;
static CK_FUNCTION_LIST functions;

static void note(const char *line)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/logins", getenv("LOGIN_FAULTS"));
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, line, strlen(line)) < 0) abort();
    close(file);
}

/* Reads which kind of fault there is. */
static unsigned long fault(char kind[16])
{
    char path[4096];
    unsigned long number = 0;
    kind[0] = 0;
    snprintf(path, sizeof path, "%s/fault", getenv("LOGIN_FAULTS"));
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%15s %lu", kind, &number) != 2) kind[0] = 0;
        fclose(file);
    }
    return number;
}

static CK_RV token_info(CK_SLOT_ID slot, CK_TOKEN_INFO *info)
{
    char kind[16];
    unsigned long number = fault(kind);
    CK_RV result = module->C_GetTokenInfo(slot, info);
    if (result == CKR_OK && strcmp(kind, "flags") == 0) info->flags |= number;
    return result;
}

static CK_RV login(CK_SESSION_HANDLE session, CK_USER_TYPE user, CK_UTF8CHAR *pin, CK_ULONG count)
{
    char kind[16];
    unsigned long number = fault(kind);
    if (strcmp(kind, "before") == 0) return number;
    note("made\n");
    CK_RV result = module->C_Login(session, user, pin, count);
    if (result == CKR_PIN_INCORRECT) note("wrong\n");
    return strcmp(kind, "after") == 0 ? number : result;
}

CK_RV C_GetFunctionList(CK_FUNCTION_LIST **list)
{
    if (!module) {
        void *library = dlopen(getenv("LOGIN_FAULTS_MODULE"), RTLD_NOW);
        CK_RV (*get)(CK_FUNCTION_LIST **) = library ? (CK_RV (*)(CK_FUNCTION_LIST **))dlsym(library, "C_GetFunctionList") : NULL;
        if (!get || get(&module) != CKR_OK) return CKR_GENERAL_ERROR;
        functions = *module;
        functions.C_Login = login;
        functions.C_GetTokenInfo = token_info;
    }
    *list = &functions;
    return CKR_OK;
}
