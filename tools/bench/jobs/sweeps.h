// SPDX-License-Identifier: Apache-2.0
// The two sections that `sweeps` adds and `plots` draws, and their columns.
#pragma once

namespace ckpt::bench {

inline constexpr const char* kDirtySweep = "sweep_dirty";
inline constexpr const char* kLinkSweep = "sweep_link";
inline constexpr const char* kDirtyColumn = "dirty share";  // the share of changed pages, in percent
inline constexpr const char* kLinkColumn = "limit";         // the limit of the link's rate, in GiB/s
inline constexpr const char* kLiveColumn = "live";  // the downtime of live moves, in milliseconds, like
                                                    // kStopCopyColumn and kBoundColumn
inline constexpr const char* kStopCopyColumn = "stop-copy";
inline constexpr const char* kBoundColumn = "bound of live";

}  // namespace ckpt::bench
