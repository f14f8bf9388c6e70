// SPDX-License-Identifier: Apache-2.0
// The coordinator's address, and the credentials of its clients. On its own host the coordinator writes them
// to GPUMIGRATE_HOME/coordinator/api.json: a Unix socket, if it has one. Other hosts have
// GPUMIGRATE_HOME/client.toml. If that file exists, it takes precedence:
//
//   url         = "https://10.0.0.1:7060"   an IP address
//   ca, certificate, key                    PEM files; `gpumigrate cluster certificate` makes them
//   token_file                              a file with a token of the coordinator; not needed with these
//
// A path that does not begin with / is relative to the folder of client.toml.
//
// Threads: one. Errors: kUnavailable without either file; kInvalidArgument, which names the file and the key;
// those of tls::Identity.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::cli {

struct Access {
  std::string socket;  // the path of a Unix socket, with which the other fields are not needed
  std::string url;     // an https:// URL; empty: no TCP
  std::string host;    // the coordinator's IP address
  std::uint16_t port = 0;
  std::string token;
  tls::CertFiles files;
};

Result<Access> find_access(const std::string& home);
// Returns the URL at which other machines reach the coordinator. If `given` is empty, this is the URL that
// the coordinator of this machine has written. Returns kInvalidArgument if the URL is not https://.
Result<std::string> api_url(const std::string& home, const std::string& given);
// Returns the text of a client.toml in the folder of ca.pem, client.pem and client.key.
[[nodiscard]] std::string client_settings(const std::string& url);

}  // namespace ckpt::cli
