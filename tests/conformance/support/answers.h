// SPDX-License-Identifier: Apache-2.0
// A driver function that records its answers, so that two runs of the suite can be compared call by call. One
// runs with, one without something in front of the driver. CONFORMANCE_ANSWERS names the file to which the
// main process writes at its end. It has one line "TEST FUNCTION RESULT" for each answer that a test got,
// sorted and once. Without it nothing is taken down.
// Threads: any.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstddef>

namespace conformance {

void note_answer(const char* function, CUresult result);
// False: it could not be written.
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
