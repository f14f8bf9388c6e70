// SPDX-License-Identifier: Apache-2.0
// The UCX context of one transport. It is configured by options, never by this process's environment, and
// shared by the lanes' workers.
// Threads: immutable after create. Errors: kUnavailable/kIo with the ucs_status_t as native code.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "libckpt/base/handle.h"
#include "libckpt/datapath/transport/lane_address.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

Error ucx_error(ucs_status_t status, std::string what);

struct UcpContextTraits {
  using Value = ucp_context_h;
  static constexpr Value kNull = nullptr;
  static void close(Value context) noexcept { ucp_cleanup(context); }
};
struct UcpWorkerTraits {
  using Value = ucp_worker_h;
  static constexpr Value kNull = nullptr;
  static void close(Value worker) noexcept { ucp_worker_destroy(worker); }
};
struct UcpListenerTraits {
  using Value = ucp_listener_h;
  static constexpr Value kNull = nullptr;
  static void close(Value listener) noexcept { ucp_listener_destroy(listener); }
};
using UniqueUcpContext = UniqueHandle<UcpContextTraits>;
using UniqueUcpWorker = UniqueHandle<UcpWorkerTraits>;
using UniqueUcpListener = UniqueHandle<UcpListenerTraits>;

class UcxContext {
 public:
  static Result<std::shared_ptr<const UcxContext>> create(const UcxOptions& options);

  [[nodiscard]] ucp_context_h get() const noexcept { return context_.get(); }
  // Returns the IP address of the options, with port 0.
  [[nodiscard]] const LaneAddress& local() const noexcept { return local_; }
  [[nodiscard]] PortRange ports() const noexcept { return ports_; }
  [[nodiscard]] bool rdma() const noexcept { return rdma_; }
  // Creates a worker with wake-up, for one thread at a time.
  Result<UniqueUcpWorker> make_worker() const;

 private:
  UcxContext(UniqueUcpContext context, const LaneAddress& local, PortRange ports, bool rdma)
      : context_(std::move(context)), local_(local), ports_(ports), rdma_(rdma) {}
  UniqueUcpContext context_;
  LaneAddress local_;
  PortRange ports_;
  bool rdma_;
};

// Converts between an address and its text, with the scheme "ucx:".
std::string format_ucx_address(const LaneAddress& address);
Result<LaneAddress> parse_ucx_address(const std::string& text);

}  // namespace ckpt::transport
