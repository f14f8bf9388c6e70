// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/tls_lane.h"

namespace ckpt::transport {
namespace {

class TlsTransport final : public Transport {
 public:
  TlsTransport(TlsOptions options, const LaneAddress& local, std::shared_ptr<const tls::PskContext> context)
      : options_(std::move(options)), local_(local), context_(std::move(context)) {}

  Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) override {
    CKPT_TRY(lane, TlsLane::listen(context_, local_, options_, token, handler));
    return std::unique_ptr<Lane>(std::move(lane));
  }

  Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                        LaneHandler& handler) override {
    CKPT_TRY(remote, parse_tls_address(address));
    CKPT_TRY(lane, TlsLane::connect(context_, local_, options_, remote, address, token, handler));
    return std::unique_ptr<Lane>(std::move(lane));
  }

 private:
  const TlsOptions options_;
  const LaneAddress local_;
  const std::shared_ptr<const tls::PskContext> context_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_tls_transport(const TlsOptions& options) {
  CKPT_TRY(local, parse_ip(options.ip));
  CKPT_TRYV(check_local(local));  // refuses an address that this machine does not have
  CKPT_TRY(context, tls::PskContext::create());
  return std::unique_ptr<Transport>(std::make_unique<TlsTransport>(options, local, std::move(context)));
}

}  // namespace ckpt::transport
