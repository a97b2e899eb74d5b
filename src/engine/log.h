/*
 * log.h: reports events that are not failures but worth knowing (brim_log_callback).
 *
 * Only the calls that the public header lists report, on the caller's thread and with no lock held.
 * Events on other threads, such as a cache's writer, are in the statistics until one of these calls
 * reads them. Reporting does not change the thread's last failure.
 */
#ifndef BRIM_LOG_H
#define BRIM_LOG_H

#include "engine/loader.h"

/* A plan was made: indexes that were found and not used. */
void brim__log_planned(const brim_runtime *runtime, const brim_plan *plan);
/* A loader was opened: what its caches found, workers that are missing. */
void brim__log_opened(brim_loader *loader);
/* The loader's mutex held, released meanwhile; `next` ends with `status`. warned: the statistics
 * had a warning when it began. */
void brim__log_next(brim_loader *loader, brim_status status, bool warned);
/* Before the caches are stopped. */
void brim__log_closing(brim_loader *loader);

#endif
