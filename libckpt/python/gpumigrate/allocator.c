// SPDX-License-Identifier: Apache-2.0
// Device memory of libckpt for torch's CUDAPluggableAllocator, which takes the names of two C functions of a
// library. _memory.py sets the session and the functions. This file includes nothing from Python, torch or
// libckpt.
// Threads: any. Memory that torch frees after the end of the session was already freed with the session.
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int (*alloc_function)(void* session, size_t bytes, unsigned long long* pointer);
typedef int (*free_function)(void* session, unsigned long long pointer);

static _Atomic(void*) current_session;
static alloc_function allocate;
static free_function release;

// Sets the session and its functions. NULL for `session` means that the session is about to end.
EXPORTED void gpumigrate_use(void* session, alloc_function alloc, free_function free) {
  allocate = alloc;
  release = free;
  atomic_store(&current_session, session);
}

EXPORTED void* gpumigrate_alloc(ssize_t bytes, int device, void* stream) {
  (void)device;  // ignored, because a job has one GPU
  (void)stream;
  void* const session = atomic_load(&current_session);
  unsigned long long pointer = 0;
  if (session == NULL || bytes <= 0 || allocate(session, (size_t)bytes, &pointer) != 0) return NULL;
  return (void*)pointer;
}

EXPORTED void gpumigrate_free(void* pointer, ssize_t bytes, int device, void* stream) {
  (void)bytes;
  (void)device;
  (void)stream;
  void* const session = atomic_load(&current_session);
  if (session != NULL && pointer != NULL) release(session, (unsigned long long)pointer);
}
