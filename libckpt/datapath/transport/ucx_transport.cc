// SPDX-License-Identifier: Apache-2.0
#include <mutex>

#include "libckpt/datapath/transport/ucx_lane.h"

namespace ckpt::transport {
namespace {

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(UcxOptions options) : options_(std::move(options)) {}

  Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) override {
    CKPT_TRY(context, context_of_lanes());
    CKPT_TRY(lane, UcxLane::listen(std::move(context), token, handler));
    return std::unique_ptr<Lane>(std::move(lane));
  }

  Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                        LaneHandler& handler) override {
    CKPT_TRY(parsed, parse_ucx_address(address));
    CKPT_TRY(context, context_of_lanes());
    CKPT_TRY(lane, UcxLane::connect(std::move(context), parsed, token, handler));
    return std::unique_ptr<Lane>(std::move(lane));
  }

 private:
  // Returns a context that exists as long as its lanes. UCX retains memory of ended workers' pools in the
  // context's registration cache, without a limit.
  Result<std::shared_ptr<const UcxContext>> context_of_lanes() {
    const std::lock_guard lock(mutex_);
    if (auto context = context_.lock()) return context;
    CKPT_TRY(context, UcxContext::create(options_));
    context_ = context;
    return context;
  }

  const UcxOptions options_;
  std::mutex mutex_;
  std::weak_ptr<const UcxContext> context_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options) {
  CKPT_TRYV(UcxContext::create(options));  // refuses options that do not work
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(options));
}

}  // namespace ckpt::transport
