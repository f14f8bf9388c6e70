// SPDX-License-Identifier: Apache-2.0
// A driver function that records its answers, so that two runs of the suite can be compared call by call. One
// run has a library in front of the driver, the other has none. CONFORMANCE_ANSWERS names the file to which
// the main process writes at its end. The file has one line "TEST FUNCTION RESULT" for each answer that a
// test got, sorted and without duplicates. Without the variable nothing is recorded.
// Threads: any.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>

namespace conformance {

void note_answer(const char* function, CUresult result);
// Writes the recorded answers. Returns false if they could not be written.
bool write_answers();

template <class Function>
struct Call;

template <class... A>
struct Call<CUresult (*)(A...)> {
  CUresult (*function)(A...) = nullptr;
  const char* name = nullptr;

  CUresult operator()(A... arguments) const {
    const CUresult result = function(arguments...);
    note_answer(name, result);
    return result;
  }
  bool operator==(std::nullptr_t) const { return function == nullptr; }
};

}  // namespace conformance
