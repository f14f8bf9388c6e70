// SPDX-License-Identifier: Apache-2.0
// POST /v1/join: a machine that has a join token becomes a node. The token is a certificate that is valid for
// ten minutes (`gpumigrate node token`) and names the node. The machine has created a key. It receives a node
// certificate for that key and the agents' token. A removed node is readmitted in this way, and its former
// certificates are denied. Each token is valid for one answer. The file used-join-tokens lists used tokens
// for as long as they could be presented again.
// Threads: one io_context on one thread; files are written in a thread pool of this class. Ownership: borrows
// the renewals' authority. Errors: kRefused without an authority, for a token that was used, and for more
// than kMaxUsed tokens.
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
  // Loads the used tokens. Call this once, before requests arrive.
  Result<void> load(Answers answers);

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  // Marks the token as used. The mark is on disk when this returns.
  control::Task<Result<void>> use_up(std::string id);

  Dependencies deps_;
  const std::string file_;
  Answers answers_;
  std::map<std::string, std::int64_t> used_;  // used tokens by id, with the time of use in seconds since 1970
  control::asio::thread_pool disk_{1};
};

}  // namespace ckpt::coordinator
