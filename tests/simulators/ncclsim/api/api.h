// SPDX-License-Identifier: Apache-2.0
// The definition of a function of NCCL's API. Its pnccl name refers to the same function, for profilers that
// replace the nccl name.
#pragma once

#include "tests/simulators/ncclsim/base/result.h"

#define NCCLSIM_API(result, name, ...)                                                         \
  extern "C" __attribute__((visibility("default"), weak)) result name(__VA_ARGS__);            \
  extern "C" __attribute__((visibility("default"), alias(#name))) result p##name(__VA_ARGS__); \
  result name(__VA_ARGS__)
