// SPDX-License-Identifier: Apache-2.0
// Finds how many threads of this project can run at the same time. Thread-safe.
#pragma once

namespace ckpt {

// Returns the number of processors on which the calling thread may run (sched_getaffinity). These are the
// processors of its cpuset, as set by a container or a service manager. std::thread::hardware_concurrency()
// counts all processors of the machine instead. The result is at least 1.
[[nodiscard]] unsigned usable_cores() noexcept;

}  // namespace ckpt
