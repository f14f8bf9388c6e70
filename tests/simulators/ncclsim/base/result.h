// SPDX-License-Identifier: Apache-2.0
// Results and the text of the last error, as ncclGetLastError returns it.
//
// Threads: any. Texts exist as long as the process, and their number is bounded. Errors: everything here
// returns NCCL's own codes.
#pragma once

#include <nccl.h>

namespace ncclsim {

// Stores the text as the last error, prints the text if NCCL_DEBUG requests warnings, and returns `code`.
[[gnu::format(printf, 2, 3)]] ncclResult_t fail(ncclResult_t code, const char* format, ...);
const char* last_error();

}  // namespace ncclsim

#define NCCLSIM_TRY(call)                                     \
  do {                                                        \
    const ncclResult_t ncclsim_result = (call);               \
    if (ncclsim_result != ncclSuccess) return ncclsim_result; \
  } while (false)
#define NCCLSIM_CHECK(condition, code, ...)                        \
  do {                                                             \
    if (!(condition)) return ::ncclsim::fail((code), __VA_ARGS__); \
  } while (false)
