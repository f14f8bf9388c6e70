// SPDX-License-Identifier: Apache-2.0
// The number of this project's threads that can run at a time. Thread-safe.
#pragma once

namespace ckpt {

// Returns the number of processors on which the calling thread may run (sched_getaffinity). These are the
// processors of its cpuset, as set by a container or a service manager. std::thread::hardware_concurrency()
// counts all processors of the machine instead. At least 1.
[[nodiscard]] unsigned usable_cores() noexcept;

}  // namespace ckpt
