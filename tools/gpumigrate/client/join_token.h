// SPDX-License-Identifier: Apache-2.0
// A join token: one line of text with which a machine becomes a node once, within ten minutes. It holds all that the
// machine needs to talk to the right coordinator and to no other:
//
//   gmjoin1,URL,CA,CERTIFICATE,KEY     URL of the API; the others are PEM without its first and last line, in one line
//
// Threads: pure functions. Errors: kInvalidArgument for other text, which is not repeated in the error.
#pragma once

#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/ca/authority.h"

namespace ckpt::cli {

struct JoinToken {
  std::string url;
  std::string ca;  // PEM
  tls::Issued own;
};

[[nodiscard]] std::string to_text(const JoinToken& token);
Result<JoinToken> parse_join_token(const std::string& text);

}  // namespace ckpt::cli
