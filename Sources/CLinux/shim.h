#include <sys/prctl.h>

// prctl(2) takes a variable number of arguments, which Swift cannot call.
static inline int certprov_set_dumpable(int dumpable) { return prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0); }
