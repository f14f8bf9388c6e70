// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/local/certificates.h"

#include "libckpt/net/ca/authority_folder.h"
#include "libckpt/net/control/toml_text.h"

namespace ckpt::cli {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::string authority_folder(const std::string& home) {
  return home + "/tls";
}

tls::CertFiles files_of(const std::string& folder, const std::string& name) {
  return {folder + "/ca.pem", folder + "/" + name + ".pem", folder + "/" + name + ".key"};
}

// Returns the settings as an inline table, so that the operator's other settings can follow.
std::string settings_of(const tls::CertFiles& files) {
  return "tls = { ca = " + control::toml_string(files.ca) +
         ", certificate = " + control::toml_string(files.certificate) +
         ", key = " + control::toml_string(files.key) + " }\n";
}

std::string node_folder(const std::string& home, const std::string& node) {
  return home + "/nodes/" + node + "/tls";
}

tls::Authority::Order order_for(tls::Peer subject, std::chrono::seconds term) {
  tls::Authority::Order order;
  order.subject = std::move(subject);
  order.term = term;
  order.hosts = {kLoopback};
  return order;
}

}  // namespace

tls::CertFiles metrics_certificate(const std::string& home) {
  return files_of(authority_folder(home), "viewer");
}

Result<void> certify_local_coordinator(const std::string& home) {
  const std::string folder = authority_folder(home);
  CKPT_TRYV(tls::obtain_authority(folder));
  CKPT_TRYV(tls::issue(folder, order_for(tls::Peer::client("viewer"), tls::kClientTerm), folder, "viewer"));
  return tls::issue(folder, order_for(tls::Peer::coordinator(), tls::kCoordinatorTerm), folder,
                    "coordinator");
}

Result<void> certify_local_node(const std::string& home, const std::string& node) {
  return tls::issue(authority_folder(home), order_for(tls::Peer::node(node), tls::kNodeTerm),
                    node_folder(home, node), "node");
}

std::string coordinator_security(const std::string& home) {
  const std::string folder = authority_folder(home);
  return settings_of(files_of(folder, "coordinator")) +
         "certificate_authority = " + control::toml_string(folder) + "\n";
}

std::string node_security(const std::string& home, const std::string& node) {
  return settings_of(files_of(node_folder(home, node), "node"));
}

}  // namespace ckpt::cli
