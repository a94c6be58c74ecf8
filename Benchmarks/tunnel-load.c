// The two ends of the tunnel benchmark: clients with mutual TLS 1.3 (OpenSSL), and the program behind the tunnel.
//
//     tunnel-load target                                        prints its port on loopback, until its input ends
//     tunnel-load connect PORT CHAIN KEY CLIENTS SECONDS        new connections, one after the other by each client; prints how many a second
//     tunnel-load count PORT CHAIN KEY CLIENTS CONNECTIONS      the same, until so many were made
//     tunnel-load up|down PORT CHAIN KEY CLIENTS SECONDS        bytes to or from the target, one connection by each client; prints MB a second
//     tunnel-load idle|used PORT CHAIN KEY CONNECTIONS          opens connections, prints "open", and keeps them until its input ends;
//                                                               used: each has sent 1 MiB to the target
//
// A new connection is a full handshake, a byte to the target and its echo, and close_notify. No session is resumed. The clients do not
// verify the certificate: what they cost is no figure of the tunnel.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static SSL_CTX *context;
static struct sockaddr_in address = {.sin_family = AF_INET};
static char mode;
static atomic_bool over;
static atomic_long total, left;
static pthread_barrier_t ready;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    ERR_print_errors_fp(stderr);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void *thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    if (pthread_create(&thread, &attributes, run, argument) != 0) fail("pthread_create");
    return (void *)thread;
}

static void until_input_ends(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

// The target: the first byte of a connection says what it does.

static void *stream(void *argument) {
    int connection = (int)(long)argument & 0xffffff;
    static char bytes[1 << 17];
    char *space = malloc(sizeof bytes);
    if ((long)argument >> 24) {
        while (write(connection, bytes, sizeof bytes) > 0) {}
    } else {
        while (read(connection, space, sizeof bytes) > 0) {}
    }
    free(space);
    close(connection);
    return NULL;
}

static void *serve(void *argument) {
    int listener = (int)(long)argument, poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(poll, events, 64, -1);
        for (int number = 0; number < count; number++) {
            int connection = events[number].data.fd;
            char byte;
            if (connection == listener) {
                if ((connection = accept(listener, NULL, NULL)) < 0) continue;
                event.data.fd = connection;
                epoll_ctl(poll, EPOLL_CTL_ADD, connection, &event);
            } else if (read(connection, &byte, 1) != 1) {
                close(connection);
            } else if (byte == 'e') {
                (void)!write(connection, &byte, 1);
            } else {
                epoll_ctl(poll, EPOLL_CTL_DEL, connection, NULL);
                thread(stream, (void *)((long)connection | (long)(byte == 'd') << 24));
            }
        }
    }
    return argument;
}

static void target(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 4096) < 0) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    thread(serve, (void *)(long)listener);
    until_input_ends();
}

// The clients.

static SSL *connected(void) {
    int connection = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(connection, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, connection);
    char byte = mode;
    if (SSL_connect(tls) != 1) fail("handshake");
    if (SSL_write(tls, &byte, 1) != 1 || (mode == 'e' && SSL_read(tls, &byte, 1) != 1)) fail("echo");
    return tls;
}

static void end(SSL *tls) {
    SSL_shutdown(tls);
    close(SSL_get_fd(tls));
    SSL_free(tls);
}

static void *connect_again(void *argument) {
    while (!over && atomic_fetch_sub(&left, 1) > 0) {
        end(connected());
        total++;
    }
    return argument;
}

static void *pass(void *argument) {
    SSL *tls = connected();
    char *bytes = calloc(1, 1 << 16);
    pthread_barrier_wait(&ready);
    while (!over) {
        int count = mode == 'd' ? SSL_read(tls, bytes, 1 << 16) : SSL_write(tls, bytes, 1 << 16);
        if (count <= 0) fail("stream");
        total += count;
    }
    free(bytes);
    end(tls);
    return argument;
}

static void *hold(void *argument) {
    static char bytes[1 << 16];
    while (atomic_fetch_sub(&left, 1) > 0) {
        SSL *tls = connected();
        for (int number = 0; mode == 'u' && number < 16; number++)
            if (SSL_write(tls, bytes, sizeof bytes) <= 0) fail("stream");
    }
    return argument;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (count == 2) return target(), 0;
    if (count < 6) return fprintf(stderr, "see the head of tunnel-load.c\n"), 64;
    address.sin_port = htons(atoi(words[2]));
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 || SSL_CTX_set1_groups_list(context, "X25519") != 1
        || SSL_CTX_use_certificate_chain_file(context, words[3]) != 1
        || SSL_CTX_use_PrivateKey_file(context, words[4], SSL_FILETYPE_PEM) != 1)
        fail("TLS");
    int clients = atoi(words[5]), is_used = strcmp(words[1], "used") == 0;
    int idle = is_used || strcmp(words[1], "idle") == 0, stream = !is_used && (words[1][0] == 'u' || words[1][0] == 'd');
    int is_count = strcmp(words[1], "count") == 0;
    double seconds = idle || is_count ? 0 : atof(words[6]);
    mode = stream || is_used ? words[1][0] : 'e';
    left = idle ? clients : is_count ? atol(words[6]) : 1L << 40;
    if (idle) clients = 8;
    pthread_barrier_init(&ready, NULL, clients + 1);
    pthread_t *threads = calloc(clients, sizeof *threads);
    for (int number = 0; number < clients; number++)
        threads[number] = (pthread_t)thread(idle ? hold : stream ? pass : connect_again, NULL);
    if (stream) pthread_barrier_wait(&ready);
    double begin = now();
    long first = total;
    if (seconds > 0) {
        usleep(seconds * 1e6);
        over = 1;
    }
    double passed = (total - first) / (now() - begin);
    for (int number = 0; number < clients; number++) pthread_join(threads[number], NULL);
    if (idle) {
        printf("open\n");
        fflush(stdout);
        until_input_ends();
    } else {
        printf("%.1f\n", is_count ? total / (now() - begin) : stream ? passed / 1e6 : passed);
    }
    return 0;
}
