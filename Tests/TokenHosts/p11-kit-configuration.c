/* Preloaded into a program, makes p11-kit read the configuration in $TEST_P11_KIT, and nothing of this host or its user.
   p11-kit has no variable for that, and does not read a user's configuration where that is root. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void override(const char *system, const char *user, const char *package, const char *admin, const char *home);

__attribute__((constructor)) static void configure(void)
{
    static char paths[3][512];
    const char *folder = getenv("TEST_P11_KIT");
    override *configuration = (override *)dlsym(RTLD_DEFAULT, "p11_kit_override_system_files");
    if (!folder || !configuration)
        return;
    snprintf(paths[0], sizeof paths[0], "%s/pkcs11.conf", folder);
    snprintf(paths[1], sizeof paths[1], "%s/modules", folder);
    snprintf(paths[2], sizeof paths[2], "%s/none", folder);
    configuration(paths[0], paths[2], paths[2], paths[1], paths[2]);
}
