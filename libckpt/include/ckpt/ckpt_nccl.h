/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt_nccl.h: NCCL communicators of ranks that can move (ckpt.h). Header only: it calls the NCCL that the program links.
 *
 *   ckpt_nccl* group;
 *   ckpt_nccl_group(s, "world", members, n, rank, &group);      // called before ckpt_ready, with a current
                                                                 // context
 *   ckpt_ready(s, &start);
 *   if (ckpt_nccl_get(group) == NULL) ckpt_nccl_use(group, make_communicator());   // skipped after a move
 *   for (; step < steps; ++step) {
 *     ncclAllReduce(mine, sum, count, ncclFloat, ncclSum, ckpt_nccl_get(group), stream);
 *     ckpt_barrier(s);
 *   }
 *
 * Ask for the communicator after each barrier. Its epoch changes when it is another one: graphs are captured again then.
 * A communicator that was made for a move does not block (ncclConfig_t.blocking = 0): calls on it may return
 * ncclInProgress, and ckpt_nccl_settle() waits for their result.
 *
 * Threads: ckpt_nccl_get, ckpt_nccl_epoch and ckpt_nccl_use on the thread that calls ckpt_barrier. Ownership: the group
 * has its communicator from ckpt_nccl_use on; ckpt_nccl_end ends both, after ckpt_shutdown. Errors: those of ckpt.h and
 * NCCL. Why NCCL made no communicator for a move is printed to stderr.
 */
#ifndef CKPT_CKPT_NCCL_H
#define CKPT_CKPT_NCCL_H

#include <cuda.h>
#include <nccl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ckpt_nccl {
  ncclComm_t in_use; /* NULL: none yet */
  ncclComm_t next;   /* being made, or made and not in use yet */
  ncclComm_t old;    /* no more in use, to be ended */
  uint64_t epoch;    /* 0: the program's own */
  int rank, ranks;   /* of the group */
  CUcontext context;
  CUstream stream;    /* of rehearsals */
  CUdeviceptr memory; /* likewise: one float */
} ckpt_nccl;

static inline ckpt_status ckpt_nccl_status(ncclResult_t result) {
  if (result == ncclSuccess) return CKPT_OK;
  if (result == ncclInProgress) return CKPT_BUSY;
  fprintf(stderr, "ckpt_nccl: %s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL));
  return CKPT_ERROR_CUDA;
}

static inline ckpt_status ckpt_nccl_ticket(void* user, uint64_t epoch, void* ticket, size_t* bytes) {
  ncclUniqueId id;
  (void)user;
  (void)epoch;
  if (*bytes < sizeof id || ncclGetUniqueId(&id) != ncclSuccess) return CKPT_ERROR_CUDA;
  memcpy(ticket, &id, sizeof id);
  *bytes = sizeof id;
  return CKPT_OK;
}

static inline ckpt_status ckpt_nccl_begin(void* user, uint64_t epoch, const void* ticket, size_t bytes) {
  ckpt_nccl* group = (ckpt_nccl*)user;
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ckpt_status begun;
  (void)epoch;
  if (bytes != sizeof id || cuCtxSetCurrent(group->context) != CUDA_SUCCESS) return CKPT_ERROR_INVALID;
  memcpy(&id, ticket, sizeof id);
  config.blocking = 0;
  begun = ckpt_nccl_status(ncclCommInitRankConfig(&group->next, group->ranks, id, group->rank, &config));
  return begun == CKPT_BUSY ? CKPT_OK : begun;
}

static inline ckpt_status ckpt_nccl_poll(void* user, uint64_t epoch) {
  ckpt_nccl* group = (ckpt_nccl*)user;
  ncclResult_t state = ncclSuccess;
  CUresult copied;
  (void)epoch;
  if (ncclCommGetAsyncError(group->next, &state) != ncclSuccess) return CKPT_ERROR_CUDA;
  if (state != ncclSuccess) return ckpt_nccl_status(state);
  copied = cuStreamQuery(group->stream);
  if (copied == CUDA_SUCCESS) return CKPT_OK;
  return copied == CUDA_ERROR_NOT_READY ? CKPT_BUSY : CKPT_ERROR_CUDA;
}

static inline ckpt_status ckpt_nccl_rehearse(void* user, uint64_t epoch) {
  ckpt_nccl* group = (ckpt_nccl*)user;
  void* memory = (void*)(uintptr_t)group->memory;
  ckpt_status begun;
  (void)epoch;
  begun = ckpt_nccl_status(
      ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum, group->next, (cudaStream_t)group->stream));
  return begun == CKPT_BUSY ? CKPT_OK : begun;
}

static inline ckpt_status ckpt_nccl_swap(void* user, uint64_t epoch) {
  ckpt_nccl* group = (ckpt_nccl*)user;
  group->old = group->in_use;
  group->in_use = group->next;
  group->next = NULL;
  group->epoch = epoch;
  return CKPT_OK;
}

/* Abort, not destroy: ranks that have left take no part any more. */
static inline void ckpt_nccl_discard(void* user, uint64_t epoch) {
  ckpt_nccl* group = (ckpt_nccl*)user;
  (void)epoch;
  cuCtxSetCurrent(group->context);
  if (group->next != NULL) ncclCommAbort(group->next);
  if (group->old != NULL) ncclCommAbort(group->old);
  group->next = group->old = NULL;
}

/* `rank`: this rank's number in the job, which is one of `members`. */
static inline ckpt_status ckpt_nccl_group(ckpt_session* session, const char* name, const uint32_t* members,
                                          uint32_t count, uint32_t rank, ckpt_nccl** out) {
  static const ckpt_group_ops ops = {ckpt_nccl_ticket,   ckpt_nccl_begin, ckpt_nccl_poll,
                                     ckpt_nccl_rehearse, ckpt_nccl_swap,  ckpt_nccl_discard};
  ckpt_nccl* group = (ckpt_nccl*)calloc(1, sizeof *group);
  uint32_t at;
  *out = group;
  if (group == NULL) return CKPT_ERROR_MEMORY;
  group->ranks = (int)count;
  group->rank = -1;
  for (at = 0; at < count; ++at)
    if (members[at] == rank) group->rank = (int)at;
  if (group->rank < 0) return CKPT_ERROR_INVALID;
  if (cuCtxGetCurrent(&group->context) != CUDA_SUCCESS || group->context == NULL ||
      cuStreamCreate(&group->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
      cuMemAlloc(&group->memory, sizeof(float)) != CUDA_SUCCESS)
    return CKPT_ERROR_CUDA;
  return ckpt_group_callbacks(session, name, members, count, &ops, group);
}

static inline ncclComm_t ckpt_nccl_get(const ckpt_nccl* group) {
  return group->in_use;
}
static inline uint64_t ckpt_nccl_epoch(const ckpt_nccl* group) {
  return group->epoch;
}
/* The program's first communicator of the group. */
static inline void ckpt_nccl_use(ckpt_nccl* group, ncclComm_t communicator) {
  group->in_use = communicator;
}

/* The result of a call on a communicator that does not block. */
static inline ncclResult_t ckpt_nccl_settle(ncclComm_t communicator, ncclResult_t result) {
  while (result == ncclInProgress) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress) return state;
    sched_yield();
  }
  return result;
}

static inline void ckpt_nccl_end(ckpt_nccl* group) {
  if (group == NULL) return;
  cuCtxSetCurrent(group->context);
  if (group->next != NULL) ncclCommAbort(group->next);
  if (group->old != NULL) ncclCommAbort(group->old);
  if (group->in_use != NULL &&
      ckpt_nccl_settle(group->in_use, ncclCommFinalize(group->in_use)) == ncclSuccess)
    ncclCommDestroy(group->in_use);
  cuStreamDestroy(group->stream);
  cuMemFree(group->memory);
  free(group);
}

#ifdef __cplusplus
}
#endif
#endif
