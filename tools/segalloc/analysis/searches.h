/* Programs that ask for memory until they are refused: they double what they ask for, or take one block after the other. Their
   refusal is what they look for, and costs them nothing.

   An example. 64, 128, 256 and 512 MiB are served and freed, 1 GiB is refused, and nothing is asked for afterwards. */
#ifndef SG_ANALYSIS_SEARCHES_H
#define SG_ANALYSIS_SEARCHES_H

#include <stdbool.h>
#include <stdint.h>

/* The requests of a process, by whichever call, in their order. Zero at first. */
struct sg_search {
    uint64_t requests;   /* so far */
    uint64_t last;       /* bytes of the last that was served */
    uint64_t grows_from; /* number of the request, from 1, from which each asks for more than the one before */
    uint64_t same_from;  /* … and from which all ask for as much */
    uint64_t refused_at; /* number of the first that was refused; 0: none was */
    uint64_t refused;    /* its bytes */
    uint64_t begins;     /* number of the first request of the search that ends there; 0: it is none */
    bool goes_on; /* something else was asked for afterwards than what lies between the last served and the refused */
};

void sg_search_served(struct sg_search *search, uint64_t bytes);
void sg_search_refused(struct sg_search *search, uint64_t bytes);

/* True if a program has searched in `endless`, on a card without end, and in `other`, on a smaller one. There its search may have
   no more than begun. Nothing else may follow in either. */
bool sg_search_is_same(const struct sg_search *endless, const struct sg_search *other);

#endif
