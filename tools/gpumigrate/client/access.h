// SPDX-License-Identifier: Apache-2.0
// Where the coordinator is, and with what it is asked. On its own host that stands in
// GPUMIGRATE_HOME/coordinator/api.json, which the coordinator writes: a Unix socket, if it has one. Elsewhere it stands in
// GPUMIGRATE_HOME/client.toml, which wins if there is one:
//
//   url         = "https://10.0.0.1:7060"   an IP address
//   ca, certificate, key                    PEM files; those of `gpumigrate cluster certificate`
//   token_file                              the text of one of the coordinator's tokens; not needed with these
//
// A path that does not begin with / is one in the folder of client.toml.
//
// Threads: one. Errors: kUnavailable without either file; kInvalidArgument naming file and key; those of
// tls::Identity.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::cli {

struct Access {
  std::string socket;  // the path of a Unix socket; with it nothing else is needed
  std::string url;     // https://; empty: no TCP
  std::string host;    // an IP address
  std::uint16_t port = 0;
  std::string token;
  tls::CertFiles files;
};

Result<Access> find_access(const std::string& home);
// Where clients on other machines find the coordinator: `given` unless it is empty, else what the coordinator of
// this machine has written. kInvalidArgument if that is not https://.
Result<std::string> api_url(const std::string& home, const std::string& given);
// A client.toml beside ca.pem, client.pem and client.key.
[[nodiscard]] std::string client_settings(const std::string& url);

}  // namespace ckpt::cli
