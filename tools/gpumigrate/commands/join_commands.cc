// SPDX-License-Identifier: Apache-2.0
// The commands `node token`, which runs on the machine with the authority's key, and `node join`, which runs
// on the machine that becomes a node.
#include <sys/stat.h>

#include <filesystem>
#include <iostream>

#include "libckpt/api/site.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/random.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/access.h"
#include "tools/gpumigrate/client/join_token.h"
#include "tools/gpumigrate/client/site_files.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

constexpr unsigned kPublic = 0644;
constexpr unsigned kPrivate = 0600;
constexpr std::size_t kLargestToken = 16 << 10;

struct JoinOptions {
  std::string node;
  std::string url;
  std::string authority;
  std::string token_file;
  std::string out;
  std::string address;
  std::string home;
};

Result<JoinToken> make_token(const Context& context, const JoinOptions& options) {
  const std::string folder = options.authority.empty() ? context.home() + "/tls" : options.authority;
  JoinToken token;
  CKPT_TRY(url, api_url(context.home(), options.url));
  token.url = std::move(url);
  CKPT_TRY(authority, tls::Authority::read(folder));
  CKPT_TRY(ca, read_file(folder + "/ca.pem", tls::kMaxPemBytes));
  CKPT_TRY(id, random_hex(tls::kJoinIdLength / 2));
  tls::Authority::Order order;
  order.subject = tls::Peer::joiner(id, options.node);
  order.term = tls::kJoinTerm;
  CKPT_TRY(own, authority.sign(order));
  token.ca = std::move(ca);
  token.own = std::move(own);
  return token;
}

int print_token(Context& context, const JoinOptions& options) {
  const auto token = make_token(context, options);
  if (!token) return report(context, token.error());
  if (context.json)
    context.print({{"node", options.node}, {"token", to_text(*token)}});
  else
    context.out << to_text(*token) << "\n";
  return kDone;
}

Result<std::string> read_token(const std::string& file) {
  if (file != "-") return read_file(file, kLargestToken);
  std::string text(kLargestToken, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::cin.gcount()));
  return text;
}

// A temporary client's folder with the certificate and key of the token. The destructor removes the folder.
class JoinerFolder {
 public:
  static Result<std::unique_ptr<JoinerFolder>> make(const JoinToken& token, const std::string& out) {
    std::unique_ptr<JoinerFolder> made(new JoinerFolder(out + "/joining"));
    std::error_code code;
    std::filesystem::create_directories(made->path_, code);
    if (code || ::chmod(made->path_.c_str(), 0700) != 0)
      return Error(ErrorCode::kIo, "Cannot create the folder " + made->path_);
    CKPT_TRYV(write_file_durably(made->path_ + "/ca.pem", token.ca, kPublic));
    CKPT_TRYV(write_file_durably(made->path_ + "/client.key", token.own.key, kPrivate));
    CKPT_TRYV(write_file_durably(made->path_ + "/client.pem", token.own.certificate, kPublic));
    CKPT_TRYV(write_file_durably(made->path_ + "/client.toml", client_settings(token.url), kPublic));
    return made;
  }
  ~JoinerFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  JoinerFolder(const JoinerFolder&) = delete;
  JoinerFolder& operator=(const JoinerFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit JoinerFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Writes the node's files. Returns true if it wrote agent.toml. An existing agent.toml is not replaced.
Result<bool> write_node(const NodeSite& site, const JoinToken& token, const std::string& key,
                        const api::NodeJoin& given) {
  const std::string& out = site.folder;
  CKPT_TRY(named, tls::peer_with_key(given.certificate, key));
  if (named != tls::Peer::node(given.node))
    return Error(ErrorCode::kProtocol,
                 "The coordinator's answer has no certificate for this node and its key");
  CKPT_TRYV(write_file_durably(out + "/ca.pem", token.ca, kPublic));
  CKPT_TRYV(tls::replace_pair(out + "/node.pem", given.certificate, out + "/node.key", key));
  CKPT_TRYV(write_file_durably(out + "/agent-token", given.agent_token + "\n", kPrivate));
  std::error_code ignored;
  if (std::filesystem::exists(out + "/agent.toml", ignored)) return false;
  CKPT_TRYV(write_file_durably(out + "/agent.toml", node_settings(site), kPublic));
  return true;
}

struct Joined {
  std::string node;
  std::string folder;
  bool wrote_settings = false;
};

Result<Joined> join(const Context& context, const JoinOptions& options) {
  CKPT_TRYV(has_address(options.address));  // an invalid address must not use up the token
  CKPT_TRY(text, read_token(options.token_file));
  CKPT_TRY(token, parse_join_token(text));
  const std::string out = std::filesystem::absolute(options.out).string();
  std::error_code code;
  std::filesystem::create_directories(out, code);
  if (code) return Error(ErrorCode::kIo, "Cannot create the folder " + out + ": " + code.message());
  CKPT_TRY(joiner, JoinerFolder::make(token, out));
  CKPT_TRY(made, tls::make_signing_request({options.address}));
  CoordinatorClient coordinator(joiner->path());
  CKPT_TRY(answer, coordinator.post("/v1/join", {{"request", made.request}}));
  const auto given = record::from_answer<api::NodeJoin>(answer);
  NodeSite site;
  site.node = given.node;
  site.home =
      std::filesystem::absolute(options.home.empty() ? context.home() + "/agent" : options.home).string();
  site.coordinator = reachable_address(given.agent_address, token.url);
  site.address = options.address;
  site.folder = out;
  CKPT_TRY(wrote, write_node(site, token, made.key, given));
  return Joined{site.node, out, wrote};
}

int join_cluster(Context& context, const JoinOptions& options) {
  const auto made = join(context, options);
  if (!made) return report(context, made.error());
  const Joined& joined = *made;
  if (context.json) {
    context.print(
        {{"node", joined.node}, {"folder", joined.folder}, {"wrote_settings", joined.wrote_settings}});
    return kDone;
  }
  context.out << "This machine is node " << joined.node << "\n"
              << (joined.wrote_settings ? "Wrote " : "Kept ") << joined.folder
              << "/agent.toml\nNext: gpumigrate-agent --config " << joined.folder
              << "/agent.toml (or the unit gpumigrate-agent)\n";
  return kDone;
}

}  // namespace

void add_join_commands(CommandTree& tree) {
  const auto options = std::make_shared<JoinOptions>();
  Command node = *tree.app().find_subcommand("node");
  Command token =
      tree.add(node, "token", "Create a token with which one machine can join as a node within ten minutes",
               [options](Context& c) { return print_token(c, *options); });
  token.add_option("node", options->node, "Name of the new node").required();
  token
      .add_option("--url", options->url,
                  "The URL of the coordinator's API (default: the coordinator of this machine)")
      .called("URL");
  token.add_option("--folder", options->authority, "The authority's folder (default: tls in GPUMIGRATE_HOME)")
      .called("FOLDER");
  token.add_example("gpumigrate node token node-b > token",
                    "Create a join token; copy it to the new machine for `node join`");
  token.set_footer(
      "The coordinator must have certificate_authority in its settings. Keep the token secret: the "
      "first machine that uses it becomes the node.");
  Command join = tree.add(node, "join", "Make this machine a node with a join token",
                          [options](Context& c) { return join_cluster(c, *options); });
  join.add_option("token", options->token_file, "File with the token; - is standard input").required();
  join.add_option("--address", options->address, "IP address at which other nodes reach this machine")
      .called("ADDRESS")
      .required();
  join.add_option("--out", options->out,
                  "Folder for agent.toml, the certificate, its key and the agents' token")
      .called("FOLDER")
      .required();
  join.add_option("--home", options->home,
                  "Folder for the node's journal, logs and images (default: agent in GPUMIGRATE_HOME)")
      .called("FOLDER");
  join.add_example("gpumigrate node join token --address 10.0.0.2 --out /etc/gpumigrate",
                   "Make this machine a node, with a new key and an agent.toml");
}

}  // namespace ckpt::cli
