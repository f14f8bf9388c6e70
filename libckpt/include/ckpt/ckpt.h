/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt.h: makes a GPU program movable in cooperative mode. C, no dependency but libc.
 *
 * A program names its tensors, reports that it is ready, and calls ckpt_barrier() once a step.
 * `gpumigrate migrate` can then move it to another GPU while it runs. The same program is started at the
 * target first, as a *standby*. It does all its own start-up (context, modules, allocations, ckpt_tensor) and
 * then blocks in ckpt_ready(). There it waits until the source has stopped and its memory and host state have
 * arrived.
 *
 *   ckpt_session* s;  ckpt_role role;  ckpt_start start;
 *   ckpt_init(NULL, &s, &role);
 *   ckpt_devptr w;  ckpt_alloc(s, bytes, &w);
 *   ckpt_tensor(s, "weights", w, bytes, CKPT_F32, 1, (const uint64_t[]){n}, CKPT_PARAMETER);
 *   ckpt_host_state(s, "step", &step, sizeof step);
 *   ckpt_ready(s, &start);
 *   if (start == CKPT_FRESH) initialise_weights();          // a resumed instance finds the weights in place
 *   for (; step < steps; ) { train_step(); ++step; ckpt_barrier(s); }
 *   ckpt_shutdown(s);
 *
 * Outside gpumigrate (CKPT_SOCKET not in the environment) every call works and nothing moves.
 *
 * Rules. Before ckpt_ready a standby opens no log, port, tracker run or output file and joins no rendezvous.
 * Between entry and return of ckpt_barrier no other thread touches named memory. At the source ckpt_barrier
 * does not return after the job has moved: the process ends there without atexit handlers. With
 * CKPT_OPTION_RETURN_MOVED it returns CKPT_MOVED instead, and the process has 5 s to end. Tensors are matched
 * by name, dtype and shape. Tensors that share the same bytes (tied weights) are sent once; a tensor may lie
 * inside another, but must not overlap it partly.
 *
 * Memory. Tensors in memory from ckpt_alloc (or other exportable driver memory) are copied while the job
 * runs. Memory that cannot be exported (plain cuMemAlloc, module globals) may be named too: it is copied at
 * the barrier, at most 64 MiB.
 *
 * Threads: calls on one session are serialised inside; ckpt_barrier and ckpt_ready are called by one thread.
 * A CUDA context must be current in ckpt_alloc, ckpt_tensor, ckpt_ready and ckpt_barrier.
 * Errors: a ckpt_status; ckpt_last_error() gives the reason as one line (valid until the next call of that
 * thread).
 */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_ABI_VERSION 1
#define CKPT_API __attribute__((visibility("default")))

/* Any number may come as an enumerator, from C programs above all, and what is not in the list is an error.
 * C++ leaves that undefined unless the type is fixed: to the one that C compilers take. */
#ifdef __cplusplus
#define CKPT_IS_INT : int
#define CKPT_IS_UNSIGNED : unsigned
#else
#define CKPT_IS_INT
#define CKPT_IS_UNSIGNED
#endif

typedef enum ckpt_status CKPT_IS_INT {
  CKPT_OK = 0,
  CKPT_MOVED = 1, /* of ckpt_barrier: the job has left this process, by a move or into an image: end it
                   (only with CKPT_OPTION_RETURN_MOVED) */
  CKPT_BUSY = 2,  /* of ckpt_group_ops: what was begun is not done yet */
  CKPT_ERROR_INVALID = -1,    /* a wrong argument or call order */
  CKPT_ERROR_CUDA = -2,       /* the driver refused; ckpt_last_error() names the call and the CUresult */
  CKPT_ERROR_MEMORY = -3,     /* out of device or host memory */
  CKPT_ERROR_CONNECTION = -4, /* the keeper is gone */
  CKPT_ERROR_MISMATCH = -5,   /* moved state does not fit what this instance has named */
  CKPT_ERROR_LIMIT = -6       /* more than ckpt allows (names, shapes, memory that cannot be exported) */
} ckpt_status;

typedef enum ckpt_role CKPT_IS_UNSIGNED { CKPT_ROLE_FRESH = 0, CKPT_ROLE_STANDBY = 1 } ckpt_role;
typedef enum ckpt_start CKPT_IS_UNSIGNED { CKPT_FRESH = 0, CKPT_RESUMED = 1 } ckpt_start;

typedef enum ckpt_dtype CKPT_IS_UNSIGNED {
  CKPT_U8 = 1,
  CKPT_I8,
  CKPT_U16,
  CKPT_I16,
  CKPT_U32,
  CKPT_I32,
  CKPT_U64,
  CKPT_I64,
  CKPT_F16,
  CKPT_BF16,
  CKPT_F32,
  CKPT_F64,
  CKPT_F8E4M3,
  CKPT_F8E5M2,
  CKPT_BOOL
} ckpt_dtype;

typedef enum ckpt_kind CKPT_IS_UNSIGNED {
  CKPT_PARAMETER = 1,
  CKPT_OPTIMIZER,
  CKPT_BUFFER,
  CKPT_CACHE,
  CKPT_SCRATCH /* dead at a barrier: never copied, content after a move is undefined */
} ckpt_kind;

enum { CKPT_OPTION_RETURN_MOVED = 1u };
enum { CKPT_MAX_NAME = 255, CKPT_MAX_DIMS = 8, CKPT_MAX_GROUPS = 64, CKPT_MAX_TICKET = 512 };

typedef unsigned long long ckpt_devptr; /* a CUdeviceptr */
typedef struct ckpt_session ckpt_session;
typedef struct ckpt_writer ckpt_writer;

typedef struct ckpt_options {
  uint32_t abi_version; /* CKPT_ABI_VERSION */
  uint32_t flags;       /* CKPT_OPTION_* */
} ckpt_options;

CKPT_API uint32_t ckpt_abi_version(void);
CKPT_API const char* ckpt_last_error(void);

/* Connects to the keeper named by CKPT_SOCKET, if any. `options` may be NULL. One session per process. */
CKPT_API ckpt_status ckpt_init(const ckpt_options* options, ckpt_session** session, ckpt_role* role);

/* Device memory that can be moved: physical memory of the current context's device at a stable address, in
 * units of the driver's granularity (2 MiB); content undefined. `bytes` > 0. */
CKPT_API ckpt_status ckpt_alloc(ckpt_session* session, size_t bytes, ckpt_devptr* pointer);
CKPT_API ckpt_status ckpt_free(ckpt_session* session, ckpt_devptr pointer);

/* Names `bytes` bytes at `pointer`. The shape's elements times the dtype's size must equal `bytes`. Names are
 * unique. */
CKPT_API ckpt_status ckpt_tensor(ckpt_session* session, const char* name, ckpt_devptr pointer, size_t bytes,
                                 ckpt_dtype dtype, uint32_t dims, const uint64_t* shape, ckpt_kind kind);
CKPT_API ckpt_status ckpt_drop(ckpt_session* session, const char* name);

/* Host state that moves with the job: copied at the barrier, written back before ckpt_ready returns
 * CKPT_RESUMED. */
CKPT_API ckpt_status ckpt_host_state(ckpt_session* session, const char* name, void* pointer, size_t bytes);
typedef ckpt_status (*ckpt_save_fn)(void* user, ckpt_writer* writer);
typedef ckpt_status (*ckpt_load_fn)(void* user, const void* data, size_t bytes);
CKPT_API ckpt_status ckpt_host_callbacks(ckpt_session* session, const char* name, ckpt_save_fn save,
                                         ckpt_load_fn load, void* user);
CKPT_API ckpt_status ckpt_write(ckpt_writer* writer, const void* data, size_t bytes);

/* All is named: synchronizes the context; a fresh instance goes on at once, a standby blocks until it is
 * resumed. */
CKPT_API ckpt_status ckpt_ready(ckpt_session* session, ckpt_start* start);

/* Once a step. Costs a load and a branch while nothing is asked for; in a job of several ranks a store and a fence more.
 * There each rank calls it equally often, and nothing is on its way between ranks at calls of equal number. */
CKPT_API ckpt_status ckpt_barrier(ckpt_session* session);

/* ---- jobs of several ranks ----
 * A program that calls ckpt_gang can have some of its ranks moved while all of them run. The ranks then talk through new
 * communicators. Each group with a moved member gets another one, ahead of the switch and beside the one in use.
 * The first communicators, and those after a start from an image, are the program's own business, after ckpt_ready.
 */

/* The number of this rank and how many there are: RANK and WORLD_SIZE of the environment, without them 0 of 1. */
CKPT_API ckpt_status ckpt_gang(ckpt_session* session, uint32_t* rank, uint32_t* ranks);

/* Functions that replace a group's communicator, in any library (for NCCL: ckpt_nccl.h). `epoch` names the new one;
 * each is used once. `swap` is called in ckpt_barrier or ckpt_ready, all others on a thread of the session's own, one
 * at a time. None may call the session. A function that takes long returns at once, and `poll` returns CKPT_BUSY until it
 * is done. A function that is NULL does nothing; `begin` is needed.
 *   ticket    makes what the members need to find each other, at one of them: at most *bytes, which it sets. Its process
 *             stays until the new communicator is made
 *   begin     joins, with that ticket
 *   rehearse  runs something small over the new communicator, once it is made: it connects and proves the group
 *   swap      the new one is in use from here on. Captured graphs with the old one's operations are void
 *   discard   ends what is not in use: a new one that is given up, or the old one after a swap
 */
typedef struct ckpt_group_ops {
  ckpt_status (*ticket)(void* user, uint64_t epoch, void* ticket, size_t* bytes);
  ckpt_status (*begin)(void* user, uint64_t epoch, const void* ticket, size_t bytes);
  ckpt_status (*poll)(void* user, uint64_t epoch);
  ckpt_status (*rehearse)(void* user, uint64_t epoch);
  ckpt_status (*swap)(void* user, uint64_t epoch);
  void (*discard)(void* user, uint64_t epoch);
} ckpt_group_ops;

/* Before ckpt_ready, at each member and with the same members. */
CKPT_API ckpt_status ckpt_group_callbacks(ckpt_session* session, const char* name, const uint32_t* members,
                                          uint32_t count, const ckpt_group_ops* ops, void* user);

/* Reports that the job ends by itself, closes the connection and frees the session. Memory from ckpt_alloc
 * that is still there is freed. */
CKPT_API ckpt_status ckpt_shutdown(ckpt_session* session);

#ifdef __cplusplus
}
#endif
#endif
