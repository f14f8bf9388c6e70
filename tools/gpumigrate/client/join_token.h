// SPDX-License-Identifier: Apache-2.0
// A join token: one line of text with which a machine becomes a node, once and within ten minutes. It
// contains the address of the coordinator, and the certificates with which both sides identify each other:
//
//   gmjoin1,URL,CA,CERTIFICATE,KEY     URL: of the API; the others: PEM in one line, without its frame lines
//
// Threads: pure functions. Errors: kInvalidArgument for any other text. The error does not repeat the text,
// because it may be a secret.
#pragma once

#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/ca/authority.h"

namespace ckpt::cli {

struct JoinToken {
  std::string url;
  std::string ca;  // the CA's certificate as PEM
  tls::Issued own;
};

[[nodiscard]] std::string to_text(const JoinToken& token);
Result<JoinToken> parse_join_token(const std::string& text);

}  // namespace ckpt::cli
