// SPDX-License-Identifier: Apache-2.0
// How a function of NCCL's API is defined: its pnccl name is the same function, for profilers that put
// themselves in place of the other.
#pragma once

#include "tests/simulators/ncclsim/base/result.h"

#define NCCLSIM_API(result, name, ...)                                                         \
  extern "C" __attribute__((visibility("default"), weak)) result name(__VA_ARGS__);            \
  extern "C" __attribute__((visibility("default"), alias(#name))) result p##name(__VA_ARGS__); \
  result name(__VA_ARGS__)
