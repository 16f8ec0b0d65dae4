#include "monitor/metrics.h"
#include "tool.h"

#ifdef SG_HAVE_MICROHTTPD

#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { TIMEOUT_S = 10, CONNECTIONS = 16 };

struct asked {
    const uint64_t *pids;
    size_t count;
};

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, char *text, size_t size,
                                   enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, mode);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result metrics_answer(void *user, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *upload, size_t *upload_size, void **state)
{
    static char missing[] = "see /metrics\n", refused[] = "only GET\n", memory[] = "out of memory\n";
    const struct asked *asked = user;
    struct sg_live live;
    char *text = NULL;
    size_t size = 0;
    (void)version, (void)upload, (void)upload_size, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, refused, sizeof refused - 1, MHD_RESPMEM_PERSISTENT);
    if (strcmp(url, "/metrics") != 0)
        return answer_text(connection, MHD_HTTP_NOT_FOUND, missing, sizeof missing - 1, MHD_RESPMEM_PERSISTENT);
    int error = sg_live_read(asked->pids, asked->count, &live);
    FILE *out = error ? NULL : open_memstream(&text, &size);
    if (out) {
        sg_metrics_write(out, &live);
        error = fclose(out);
    }
    sg_live_free(&live);
    if (!out || error)
        return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, memory, sizeof memory - 1,
            MHD_RESPMEM_PERSISTENT);
    return answer_text(connection, MHD_HTTP_OK, text, size, MHD_RESPMEM_MUST_FREE);
}

/* The address to listen at; NULL after a message. freeaddrinfo() is the caller's. */
static struct addrinfo *look_up(const char *verb, const char *address)
{
    char host[256] = "127.0.0.1";
    const char *colon = strrchr(address, ':'), *port = colon ? colon + 1 : address;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    bool bracketed = colon && colon - address >= 2 && address[0] == '[' && colon[-1] == ']';
    if (colon)
        snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * bracketed, address + bracketed);
    enum { PORT_MOST = 65535 };
    if (*port && strspn(port, "0123456789") == strlen(port) && (strlen(port) > 5 || atol(port) > PORT_MOST)) {
        sg_tool_usage(verb, "--listen: there is no port %s, the largest is %d", port, PORT_MOST);
        return NULL;
    }
    if (!*port || !*host || getaddrinfo(host, port, &hints, &found) != 0) {
        sg_tool_usage(verb, "--listen takes PORT or ADDRESS:PORT such as 127.0.0.1:9400, not \"%s\"", address);
        return NULL;
    }
    return found;
}

int sg_metrics_serve(const char *verb, const char *address, const uint64_t *pids, size_t count)
{
    struct asked asked = {pids, count};
    struct addrinfo *where = look_up(verb, address);
    if (!where)
        return SG_EXIT_USAGE;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before there are threads that could take them */
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | (where->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0u);
    struct MHD_Daemon *server = MHD_start_daemon(flags, 0, NULL, NULL, metrics_answer, &asked, MHD_OPTION_SOCK_ADDR,
        where->ai_addr, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS, MHD_OPTION_END);
    char host[NI_MAXHOST] = "?";
    getnameinfo(where->ai_addr, where->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
    bool six = where->ai_family == AF_INET6;
    freeaddrinfo(where);
    if (!server)
        return sg_tool_error(verb, "can't listen at %s: the port is taken, or may not be used", address);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server, MHD_DAEMON_INFO_BIND_PORT);
    sg_tool_message(verb, "http://%s%s%s:%u/metrics, until Ctrl-C", six ? "[" : "", host, six ? "]" : "",
                    info ? (unsigned)info->port : 0);
    int which;
    sigwait(&ends, &which);
    MHD_stop_daemon(server);
    return SG_EXIT_OK;
}

#else

int sg_metrics_serve(const char *verb, const char *address, const uint64_t *pids, size_t count)
{
    (void)address, (void)pids, (void)count;
    return sg_tool_error(verb, "this build has no --listen, for it was made without libmicrohttpd; -o writes a file");
}

#endif
