// SPDX-License-Identifier: Apache-2.0
// The few macros that the product's device code uses, with driver-independent names: see <cudasim/kernel.h>.
#pragma once

#include <cudasim/kernel.h>

#define PORTABLE_KERNEL(name, ...) CUDASIM_KERNEL(name, __VA_ARGS__)
#define PORTABLE_BLOCK_INDEX() CUDASIM_BLOCK_INDEX()
#define PORTABLE_BLOCK_INDEX_Y() CUDASIM_BLOCK_INDEX_Y()
#define PORTABLE_GRID_BLOCKS() CUDASIM_GRID_BLOCKS()
#define PORTABLE_GRID_BLOCKS_Y() CUDASIM_GRID_BLOCKS_Y()
