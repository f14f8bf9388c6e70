// SPDX-License-Identifier: Apache-2.0
// The commands `cluster init`, `cluster certificate` and `node certificate`. They use the cluster's own
// certificate authority in files of this machine, and do not need the coordinator.
#include <filesystem>

#include "libckpt/base/fd.h"
#include "libckpt/net/ca/authority_folder.h"
#include "tools/gpumigrate/client/access.h"
#include "tools/gpumigrate/client/site_files.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

constexpr unsigned kPublic = 0644;

struct CertificateOptions {
  std::string folder;  // the authority's folder
  std::string out;
  std::string node;
  std::string role = "viewer";
  std::string url;
  unsigned days = 0;  // the certificate's term in days; 0: the default
  std::vector<std::string> hosts;
};

std::chrono::hours term_of(const CertificateOptions& options, std::chrono::hours usual) {
  return options.days == 0 ? usual : static_cast<int>(options.days) * tls::kDay;
}

std::string days_of(std::chrono::hours term) {
  return std::to_string(term / tls::kDay) + " days";
}

std::string authority_folder(const Context& context, const CertificateOptions& options) {
  return options.folder.empty() ? context.home() + "/tls" : options.folder;
}

struct MadeCluster {
  bool authority_is_new = false;
  bool wrote_settings = false;
};

Result<MadeCluster> make_cluster(const CoordinatorSite& site, const std::string& settings) {
  const std::string& folder = site.authority;
  MadeCluster made;
  CKPT_TRY(is_new, tls::obtain_authority(folder));
  made.authority_is_new = is_new;
  tls::Authority::Order order;
  order.subject = tls::Peer::coordinator();
  order.hosts = site.hosts;
  order.term = tls::kCoordinatorTerm;
  CKPT_TRYV(tls::issue(folder, order, folder, "coordinator"));
  order.subject = tls::Peer::client("admin");
  order.hosts.clear();
  CKPT_TRYV(tls::issue(folder, order, folder, "admin"));
  std::error_code code;
  if (std::filesystem::exists(settings, code)) return made;
  std::filesystem::create_directories(std::filesystem::path(settings).parent_path(), code);
  if (code) return Error(ErrorCode::kIo, "Cannot create the folder of " + settings + ": " + code.message());
  CKPT_TRYV(write_file_durably(settings, coordinator_settings(site), kPublic));
  made.wrote_settings = true;
  return made;
}

// Prints the next commands to run.
void print_next_steps(Context& context, const CoordinatorSite& site, const std::string& settings) {
  context.out << "Next: gpumigrate-coordinator --config " << settings
              << " (or the unit gpumigrate-coordinator)\n";
  if (is_reachable(site))
    context.out << "Then for each node: gpumigrate node token NODE > token, and on its machine "
                   "gpumigrate node join token --address ADDRESS --out /etc/gpumigrate\n";
  else
    context.out << "Other machines cannot reach the coordinator. To change that, name this machine's IP "
                   "address with --host\n";
}

int init_cluster(Context& context, const CertificateOptions& options) {
  const auto absolute = [](const std::string& path) { return std::filesystem::absolute(path).string(); };
  CoordinatorSite site;
  site.home = absolute(context.home());
  site.authority = absolute(authority_folder(context, options));
  site.hosts = options.hosts;
  const std::string settings =
      absolute(options.out.empty() ? context.home() : options.out) + "/coordinator.toml";
  const auto result = make_cluster(site, settings);
  if (!result) return report(context, result.error());
  const MadeCluster& made = *result;
  if (context.json) {
    context.print({{"folder", site.authority},
                   {"authority_is_new", made.authority_is_new},
                   {"settings", settings},
                   {"wrote_settings", made.wrote_settings}});
    return kDone;
  }
  context.out << (made.authority_is_new ? "Created the authority " : "Kept the authority ") << site.authority
              << "/ca.pem\nCreated " << site.authority << "/coordinator.pem and " << site.authority
              << "/admin.pem for 90 days\nKeep " << site.authority
              << "/ca.key secret: anyone who has it can pose as any node\n"
              << (made.wrote_settings ? "Wrote " : "Kept ") << settings << "\n";
  print_next_steps(context, site, settings);
  return kDone;
}

Result<void> make_node(const std::string& folder, const CertificateOptions& options) {
  tls::Authority::Order order;
  order.subject = tls::Peer::node(options.node);
  order.hosts = options.hosts;
  order.term = term_of(options, tls::kNodeTerm);
  return tls::issue(folder, order, options.out, "node");
}

Result<void> make_client(Context& context, const CertificateOptions& options) {
  CKPT_TRY(url, api_url(context.home(), options.url));
  tls::Authority::Order order;
  order.subject = tls::Peer::client(options.role);
  order.term = term_of(options, tls::kClientTerm);
  CKPT_TRYV(tls::issue(authority_folder(context, options), order, options.out, "client"));
  return write_file_durably(options.out + "/client.toml", client_settings(url), kPublic);
}

int certify_client(Context& context, const CertificateOptions& options) {
  const auto made = make_client(context, options);
  if (!made) return report(context, made.error());
  if (context.json)
    context.print({{"role", options.role}, {"folder", options.out}});
  else
    context.out << "Created " << options.out << "/client.pem for the role " << options.role << ", for "
                << days_of(term_of(options, tls::kClientTerm)) << "\nCopy the folder " << options.out
                << " to the machine of the user: GPUMIGRATE_HOME=" << options.out << " gpumigrate jobs\n";
  return kDone;
}

int certify_node(Context& context, const CertificateOptions& options) {
  const auto made = make_node(authority_folder(context, options), options);
  if (!made) return report(context, made.error());
  if (context.json)
    context.print({{"node", options.node}, {"folder", options.out}});
  else
    context.out << "Created " << options.out << "/node.pem for node " << options.node << ", for "
                << days_of(term_of(options, tls::kNodeTerm)) << "\nCopy the folder " << options.out
                << " to the node, and name ca.pem, node.pem and node.key in [tls] of its agent.toml\n";
  return kDone;
}

}  // namespace

void add_certificate_commands(CommandTree& tree) {
  constexpr unsigned kMaxDays = 3650;
  constexpr const char* kFolder = "The authority's folder (default: tls in GPUMIGRATE_HOME)";
  const auto options = std::make_shared<CertificateOptions>();
  Command cluster = *tree.app().find_subcommand("cluster");
  Command init = tree.add(
      cluster, "init",
      "Create the certificate authority, coordinator.toml and the certificates of coordinator and admin",
      [options](Context& c) { return init_cluster(c, *options); });
  init.add_option("--folder", options->folder, kFolder).called("FOLDER");
  init.add_option("--out", options->out, "The folder for coordinator.toml (default: GPUMIGRATE_HOME)")
      .called("FOLDER");
  init.add_option("--host", options->hosts,
                  "An address or name of the coordinator's machine; may be repeated")
      .called("HOST")
      .one_value_each();
  init.add_example("gpumigrate cluster init --host 10.0.0.1 --out /etc/gpumigrate",
                   "Set up a cluster, on the coordinator's machine");
  init.set_footer(
      "An existing authority and an existing coordinator.toml are kept. The two certificates are renewed: a "
      "running coordinator uses them for new connections.\n"
      "The authority is valid for 10 years, the two certificates for 90 days.");
  Command client =
      tree.add(cluster, "certificate", "Create a client certificate for people or programs that use the API",
               [options](Context& c) { return certify_client(c, *options); });
  client
      .add_option("--role", options->role,
                  "viewer (may read), operator (may move jobs and drain nodes) or admin (may do everything)")
      .called("ROLE")
      .one_of({"viewer", "operator", "admin"});
  client.add_option("--out", options->out, "The folder for ca.pem, client.pem, client.key and client.toml")
      .called("FOLDER")
      .required();
  client
      .add_option("--url", options->url,
                  "The URL of the coordinator's API (default: the coordinator of this machine)")
      .called("URL");
  client.add_option("--days", options->days, "Validity of the certificate in days (90)")
      .in_range(1U, kMaxDays);
  client.add_option("--folder", options->folder, kFolder).called("FOLDER");
  client.add_example("gpumigrate cluster certificate --role operator --out on-call",
                     "Create a client folder, which serves as GPUMIGRATE_HOME on any machine");
  Command node = *tree.app().find_subcommand("node");
  Command certificate = tree.add(node, "certificate", "Create a node's certificate, to be copied to the node",
                                 [options](Context& c) { return certify_node(c, *options); });
  certificate.add_option("node", options->node, "Name of the node").required();
  certificate.add_option("--out", options->out, "The folder for ca.pem, node.pem and node.key")
      .called("FOLDER")
      .required();
  certificate.add_option("--days", options->days, "Validity of the certificate in days (30)")
      .in_range(1U, kMaxDays);
  certificate
      .add_option("--host", options->hosts,
                  "An address or name of the node's machine, for clients like Prometheus; may be repeated")
      .called("HOST")
      .one_value_each();
  certificate.add_option("--folder", options->folder, kFolder).called("FOLDER");
  certificate.add_example("gpumigrate node certificate node-a --out node-a-tls",
                          "Create or renew a node's certificate; a running agent uses the new one");
}

}  // namespace ckpt::cli
