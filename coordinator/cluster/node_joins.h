// SPDX-License-Identifier: Apache-2.0
// POST /v1/join: a machine that has a join token becomes a node. The token is a certificate for ten minutes
// (`gpumigrate node token`), which names the node. The machine has made a key, and gets a node's certificate for it
// with the agents' token. A node that was removed is let in again so, and its former certificates are denied. Each
// token is good for one answer: the file used-join-tokens remembers those used, for as long as they could be shown
// again.
// Threads: one io_context on one thread; files are written in a pool of its own. Ownership: borrows the renewals'
// authority. Errors: kRefused without an authority, for a token that was used, and for more than kMaxUsed of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/certificates/certificate_renewals.h"
#include "coordinator/cluster/removed_nodes.h"
#include "coordinator/requests/api_section.h"

namespace ckpt::coordinator {

class NodeJoins : public ApiSection {
 public:
  static constexpr std::size_t kMaxUsed = 10'000;
  struct Dependencies {
    CertificateRenewals& renewals;
    RemovedNodes& removed;
    DeniedCertificates& denied;
    EventLog& events;
  };
  NodeJoins(Dependencies deps, std::string file) : deps_(deps), file_(std::move(file)) {}

  struct Answers {
    std::string agent_address;
    std::string agent_token;
  };
  // Once, before requests come.
  Result<void> load(Answers answers);

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  // On disk when it returns.
  control::Task<Result<void>> use_up(std::string id);

  Dependencies deps_;
  const std::string file_;
  Answers answers_;
  std::map<std::string, std::int64_t> used_;  // tokens by id: when each was used, in seconds since 1970
  control::asio::thread_pool disk_{1};
};

}  // namespace ckpt::coordinator
