#include <openssl/core_names.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

void set_failure(const char *function, unsigned skip, unsigned count, CK_RV result);
void break_down(const char *function, CK_RV result);
void set_loss(const char *function, unsigned count, CK_RV result);
void slow_down(const char *function, unsigned milliseconds);
void forget_mutex(const char *function);
void hold(const char *function);
void hold_answer(const char *function);
void release(void);
int wait_held(unsigned count);
unsigned calls(const char *function);

struct state state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .slots = {-1, -1},
    .first_slot = 10, .distortion.type = CK_UNAVAILABLE_INFORMATION};

#define LOCKED(statement)                \
    pthread_mutex_lock(&state.lock);     \
    statement;                           \
    pthread_mutex_unlock(&state.lock)

static void set_token(unsigned token, const char *label, const char *serial, const char *pin) {
    static const CK_MECHANISM_TYPE usual[] = {CKM_ECDSA, CKM_RSA_PKCS, CKM_RSA_PKCS_PSS};
    pthread_mutex_lock(&state.lock);
    struct token *new = &state.tokens[token];
    snprintf(new->label, sizeof new->label, "%s", label);
    snprintf(new->serial, sizeof new->serial, "%s", serial);
    snprintf(new->pin, sizeof new->pin, "%s", pin);
    new->tries = TRIES;
    new->available_sessions = SESSIONS;
    memcpy(new->mechanisms, usual, sizeof usual);
    new->mechanism_count = 3;
    pthread_mutex_unlock(&state.lock);
}

static void set_flags(unsigned token, CK_FLAGS reported, CK_FLAGS concealed) {
    LOCKED(state.tokens[token].reported = reported; state.tokens[token].concealed = concealed);
}

static void set_pin_lengths(unsigned token, CK_ULONG shortest, CK_ULONG longest) {
    LOCKED(state.tokens[token].shortest_pin = shortest; state.tokens[token].longest_pin = longest);
}

static void set_sessions(unsigned token, CK_ULONG reported, CK_ULONG available) {
    LOCKED(state.tokens[token].reported_sessions = reported; state.tokens[token].available_sessions = available);
}

static void set_mechanisms(unsigned token, const CK_MECHANISM_TYPE *mechanisms, unsigned count) {
    LOCKED(memcpy(state.tokens[token].mechanisms, mechanisms, count * sizeof *mechanisms);
           state.tokens[token].mechanism_count = count);
}

/// Where a destroyed object was, or behind the last one.
static CK_OBJECT_HANDLE append(struct token *token, struct object object) {
    object.is_new = state.reads_once;
    unsigned long count = token->object_count, place = 0;
    if (token->gone_count > 0) {
        while (!token->objects[place].is_gone) place++;
        token->gone_count--;
    } else {
        if ((count & (count - 1)) == 0) {
            // What was there is not freed: a call may be using it.
            struct object *larger = malloc((count ? 2 * count : 1) * sizeof object);
            if (count) memcpy(larger, token->objects, count * sizeof object);
            token->objects = larger;
        }
        place = token->object_count++;
    }
    token->objects[place] = object;
    return place + 1;
}

/// A `CKA_ID` that is the number, in as many bytes as it takes.
static struct id id_of(unsigned number) {
    struct id id = {.count = 1};
    for (unsigned rest = number; rest >>= 8;) id.count++;
    for (CK_ULONG index = id.count; index > 0; number >>= 8) id.bytes[--index] = (CK_BYTE)number;
    return id;
}

static void add(unsigned token, struct object object) { LOCKED(append(&state.tokens[token], object)); }

static int add_key(unsigned token, unsigned id, const void *der, unsigned long count, int asks_each_time) {
    const unsigned char *next = der;
    struct object object = {
        .class = CKO_PRIVATE_KEY, .id = id_of(id), .asks_each_time = asks_each_time ? CK_TRUE : CK_FALSE};
    object.key = d2i_AutoPrivateKey(NULL, &next, (long)count);
    if (object.key == NULL) return 0;
    BIGNUM *modulus = NULL;
    if (EVP_PKEY_get_bn_param(object.key, OSSL_PKEY_PARAM_RSA_N, &modulus) == 1) {
        object.modulus_count = (unsigned long)BN_num_bytes(modulus);
        object.modulus = malloc(object.modulus_count);
        BN_bn2bin(modulus, object.modulus);
        BN_free(modulus);
    }
    add(token, object);
    return 1;
}

CK_OBJECT_HANDLE append_certificate(struct token *token, struct id id, const void *der, unsigned long count) {
    const unsigned char *next = der;
    struct object object = {.class = CKO_CERTIFICATE, .id = id, .value_count = count};
    X509 *certificate = d2i_X509(NULL, &next, (long)count);
    if (certificate == NULL) return 0;
    object.subject_count = (unsigned long)i2d_X509_NAME(X509_get_subject_name(certificate), &object.subject);
    X509_free(certificate);
    object.value = malloc(count);
    memcpy(object.value, der, count);
    return append(token, object);
}

static int add_certificate(unsigned token, unsigned id, const void *der, unsigned long count) {
    CK_OBJECT_HANDLE object;
    LOCKED(object = append_certificate(&state.tokens[token], id_of(id), der, count));
    return object != 0;
}

static void add_again(unsigned token, unsigned id) {
    pthread_mutex_lock(&state.lock);
    struct token *owner = &state.tokens[token];
    struct object object = owner->objects[owner->object_count - 1];
    object.id = id_of(id);
    append(owner, object);
    pthread_mutex_unlock(&state.lock);
}

static void set_visibility(unsigned token, int shows_certificates, int shows_keys) {
    LOCKED(state.tokens[token].hides_certificates = !shows_certificates;
           state.tokens[token].shows_keys = shows_keys);
}

static void publish_keys(unsigned token, int demands_login) {
    LOCKED(state.tokens[token].has_public_keys = 1; state.tokens[token].demands_login = demands_login);
}

static void refuse_signatures(unsigned token, CK_RV answer) {
    LOCKED(state.tokens[token].refusal = answer);
}

static void set_only_hash(unsigned token, CK_MECHANISM_TYPE hash) { LOCKED(state.tokens[token].only_hash = hash); }

static void add_public_key(unsigned token, unsigned id, const void *point, unsigned long count) {
    struct object object = {
        .class = CKO_PUBLIC_KEY, .id = id_of(id), .value_count = count, .value = malloc(count)};
    memcpy(object.value, point, count);
    add(token, object);
}

static void set_mechanism_info(unsigned token, CK_MECHANISM_TYPE mechanism, CK_MECHANISM_INFO info) {
    pthread_mutex_lock(&state.lock);
    struct token *owner = &state.tokens[token];
    for (unsigned index = 0; index < owner->mechanism_count; index++) {
        if (owner->mechanisms[index] == mechanism) owner->mechanism_infos[index] = info;
    }
    pthread_mutex_unlock(&state.lock);
}

static void clear(unsigned token) {
    // What was there is not freed: a call may be using it.
    LOCKED(state.tokens[token].object_count = state.tokens[token].gone_count = 0;
           state.tokens[token].objects = NULL);
}

static void repeat_objects(unsigned token) { LOCKED(state.tokens[token].repeats_objects = 1); }

static void read_once(void) { LOCKED(state.reads_once = 1); }

static void insert(unsigned slot, int token) {
    pthread_mutex_lock(&state.lock);
    close_sessions(slot);
    state.slots[slot] = token;
    pthread_mutex_unlock(&state.lock);
}

static void log_out(unsigned token) { LOCKED(state.tokens[token].is_logged_in = 0); }

static void grow_lists(CK_ULONG count) { LOCKED(state.growth = count); }

static void number_slots(CK_SLOT_ID first) {
    pthread_mutex_lock(&state.lock);
    for (unsigned slot = 0; slot < SLOTS; slot++) close_sessions(slot);
    state.first_slot = first;
    pthread_mutex_unlock(&state.lock);
}

static void distort(CK_ATTRIBUTE_TYPE type, CK_ULONG asked, CK_ULONG read) {
    LOCKED(state.distortion.type = type; state.distortion.asked = asked; state.distortion.read = read);
}

static unsigned looked_up(const unsigned *value) {
    unsigned result;
    LOCKED(result = *value);
    return result;
}

static unsigned pins(void) { return looked_up(&state.pins); }
static unsigned tries_left(unsigned token) { return looked_up(&state.tokens[token].tries); }
static unsigned confirmations(void) { return looked_up(&state.confirmations); }
static unsigned most_sessions(void) { return looked_up(&state.most_sessions); }
static unsigned shared_uses(void) { return looked_up(&state.shared_uses); }

static unsigned overlaps(void) { return __atomic_load_n(&state.overlaps, __ATOMIC_SEQ_CST); }
static void pad_with_nuls(void) { LOCKED(state.pads_with_nuls = 1); }
static void forbid_threads(void) { LOCKED(state.cannot_lock = 1); }
static void fix_readers(int are_fixed) { LOCKED(state.are_readers_fixed = are_fixed); }

static unsigned open_now(void) {
    unsigned result;
    LOCKED(result = open_sessions());
    return result;
}

static unsigned is_in_use(void) {
    unsigned result;
    LOCKED(result = state.is_initialized || __atomic_load_n(&state.inside, __ATOMIC_SEQ_CST) > 0);
    return result;
}

static const struct faulty_control control = {
    .set_token = set_token, .set_flags = set_flags, .set_pin_lengths = set_pin_lengths, .set_sessions = set_sessions,
    .set_mechanisms = set_mechanisms, .add_key = add_key, .add_certificate = add_certificate, .add_again = add_again,
    .clear = clear, .repeat_objects = repeat_objects, .read_once = read_once, .set_visibility = set_visibility,
    .add_public_key = add_public_key, .set_mechanism_info = set_mechanism_info, .insert = insert,
    .publish_keys = publish_keys, .refuse_signatures = refuse_signatures, .set_only_hash = set_only_hash,
    .slow_down = slow_down, .forget_mutex = forget_mutex,
    .grow_lists = grow_lists, .log_out = log_out, .number_slots = number_slots, .fail = set_failure,
    .break_down = break_down, .lose = set_loss, .hold = hold, .hold_answer = hold_answer, .release = release,
    .wait_held = wait_held, .distort = distort,
    .calls = calls, .pins = pins, .tries_left = tries_left, .confirmations = confirmations,
    .most_sessions = most_sessions, .open_sessions = open_now, .shared_uses = shared_uses, .overlaps = overlaps,
    .forbid_threads = forbid_threads, .fix_readers = fix_readers, .pad_with_nuls = pad_with_nuls,
    .is_in_use = is_in_use};

const struct faulty_control *faulty_module_control(void) { return &control; }

static unsigned long load(const char *prefix, const char *name, unsigned char *bytes, unsigned long room) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", prefix, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    unsigned long count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

/// In a process of its own, which no test can reach: a token with what is in a directory.
__attribute__((constructor)) static void configure_from_environment(void) {
    const char *directory = getenv("FAULTY_MODULE_TOKEN");
    if (directory == NULL) return;
    unsigned char bytes[4096];
    set_token(0, "remote", "0001", "1234");
    unsigned long count = load(directory, "key", bytes, sizeof bytes);
    add_key(0, 1, bytes, count, 0);
    count = load(directory, "certificate", bytes, sizeof bytes);
    add_certificate(0, 1, bytes, count);
    insert(0, 0);
}
