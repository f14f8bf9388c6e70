// SPDX-License-Identifier: Apache-2.0
#include "libckpt/transport/ucx_lane.h"

namespace ckpt::transport {
namespace {

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(std::shared_ptr<const UcxContext> context) : context_(std::move(context)) {}

  Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) override {
    CKPT_TRY(lane, UcxLane::listen(context_, token, handler));
    return std::unique_ptr<Lane>(std::move(lane));
  }

  Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                        LaneHandler& handler) override {
    CKPT_TRY(parsed, parse_ucx_address(address));
    CKPT_TRY(lane, UcxLane::connect(context_, parsed, token, handler));
    return std::unique_ptr<Lane>(std::move(lane));
  }

 private:
  std::shared_ptr<const UcxContext> context_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options) {
  CKPT_TRY(context, UcxContext::create(options));
  return std::unique_ptr<Transport>(std::make_unique<UcxTransport>(std::move(context)));
}

}  // namespace ckpt::transport
