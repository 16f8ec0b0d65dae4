/* The records of an event that several processes share: which was the last, and which of them have been reached. They
   lie in memory that all of these processes see. A record has a number, from 1 on. */
#ifndef SIM_RECORDS_H
#define SIM_RECORDS_H

#include "sim.h"

struct sim_records; /* this process's view of one event's */

/* All locked. */

/* Those of a new event, never recorded; NULL when out of memory. */
struct sim_records *sim_records_new(void);
void sim_records_drop(struct sim_records *records);
/* A process is about to submit a record: its number. sim_records_end() follows, once the work before it is complete. */
uint64_t sim_records_begin(struct sim_records *records);
void sim_records_end(struct sim_records *records, uint64_t number);
/* The number of the last, in whichever process; 0 before the first. */
uint64_t sim_records_last(const struct sim_records *records);
/* Also where the process that made the record is no more. */
bool sim_records_reached(const struct sim_records *records, uint64_t number);

/* For another process; CUDA_ERROR_INVALID_HANDLE where these came from one. */
CUresult sim_records_export(const struct sim_records *records, CUipcEventHandle *ret);
CUresult sim_records_import(const CUipcEventHandle *handle, struct sim_records **ret);

#endif
