// SPDX-License-Identifier: Apache-2.0
// How many threads of ours can run at a time. Thread-safe.
#pragma once

namespace ckpt {

// The processors that the calling thread may run on (sched_getaffinity): those of its cpuset, as a container
// or a service manager gives it, not all of the machine's, which is what std::thread::hardware_concurrency()
// counts. At least 1.
[[nodiscard]] unsigned usable_cores() noexcept;

}  // namespace ckpt
