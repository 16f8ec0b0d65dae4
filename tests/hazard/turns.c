#include "turns.h"

#include <pthread.h>
#include <stdlib.h>

#include "program.h"

struct turn {
    pthread_t thread;
    void (*function)(void *);
    void *data;
};

static struct turn turns[THREADS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *work(void *own)
{
    struct turn *turn = own;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!turn->function)
            pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
        turn->function(turn->data);
        pthread_mutex_lock(&mutex);
        turn->function = NULL;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

void turn(int thread, void (*function)(void *), void *data)
{
    struct turn *turn = &turns[thread];
    if (thread == 0) {
        function(data);
        return;
    }
    pthread_mutex_lock(&mutex);
    turn->data = data;
    turn->function = function;
    if (!turn->thread && pthread_create(&turn->thread, NULL, work, turn) != 0)
        abort();
    pthread_cond_broadcast(&changed);
    while (turn->function)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}
