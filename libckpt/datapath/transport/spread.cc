// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {
namespace {

class SpreadTransport final : public Transport {
 public:
  explicit SpreadTransport(std::vector<Transport*> over) : over_(std::move(over)) {}

  Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) override {
    return next().listen(token, handler);
  }

  Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                        LaneHandler& handler) override {
    return next().connect(address, token, handler);
  }

 private:
  Transport& next() {
    Transport& chosen = *over_[lanes_ % over_.size()];
    ++lanes_;
    return chosen;
  }

  const std::vector<Transport*> over_;
  std::size_t lanes_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_spread_transport(std::vector<Transport*> over) {
  return std::make_unique<SpreadTransport>(std::move(over));
}

}  // namespace ckpt::transport
