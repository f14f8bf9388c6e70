/* SPDX-License-Identifier: Apache-2.0
 * The frames of the examples in C (header_examples.cc has those in C++).
 */
#include <stdint.h>

#include "ckpt/ckpt.h"
#if __has_include(<nccl.h>)
#include "ckpt/ckpt_nccl.h"
#endif

void initialise_weights(void);
void train_step(void);

void ckpt_example(size_t bytes, uint64_t n, uint64_t step, uint64_t steps) {
  // example: libckpt/include/ckpt/ckpt.h
}

#if __has_include(<nccl.h>)
ncclComm_t make_communicator(void);

void ckpt_nccl_example(ckpt_session* s, ckpt_start start, const uint32_t* members, uint32_t n, uint32_t rank,
                       int step, int steps, const void* mine, void* sum, size_t count, cudaStream_t stream) {
  // example: libckpt/include/ckpt/ckpt_nccl.h
}
#endif
