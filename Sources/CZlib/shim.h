#include <zlib.h>

/// `inflateInit` is a macro, which Swift does not see.
static inline int certprov_inflate_init(z_stream *stream) { return inflateInit(stream); }
