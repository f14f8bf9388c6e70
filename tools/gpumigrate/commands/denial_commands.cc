// SPDX-License-Identifier: Apache-2.0
// The commands `cluster deny`, `cluster denied` and `cluster allow`, which manage the certificates that the
// cluster refuses before their expiry.
#include "libckpt/api/site.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/ca/request.h"
#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/commands/command_tree.h"
#include "tools/gpumigrate/commands/commands.h"

namespace ckpt::cli {
namespace {

constexpr std::size_t kTimeLength = 16;  // the length of 2026-01-31T12:00

struct DenialOptions {
  std::string file;
  std::string serial;
  std::string node;
  std::string reason;
};

Result<Json> request_of(const DenialOptions& options) {
  Json body = Json::object();
  if (!options.reason.empty()) body["reason"] = options.reason;
  const int named = int{!options.file.empty()} + int{!options.serial.empty()} + int{!options.node.empty()};
  if (named != 1)
    return Error(ErrorCode::kInvalidArgument,
                 "Name one certificate by its file or with --serial, or name a node with --node");
  if (!options.node.empty()) {
    body["node"] = options.node;
    return body;
  }
  if (options.file.empty()) {
    body["serial"] = options.serial;
    return body;
  }
  CKPT_TRY(text, read_file(options.file, tls::kMaxPemBytes));
  // Only the certificate is sent. The file may also contain a key, which stays on this machine.
  CKPT_TRY(certificate, tls::certificate_of(text));
  CKPT_TRY(pem, tls::pem_of(certificate.get()));
  body["certificate"] = pem;
  return body;
}

std::string subject_of(const api::DenialSubject& denial) {
  if (denial.node) return "Node " + denial.node->node;
  return "Certificate " + (denial.serial ? denial.serial->serial : "-");
}

int print_answer(Context& context, const Result<Json>& answer, const std::string& outcome) {
  if (!answer) return report(context, answer.error());
  if (context.json)
    context.print(*answer);
  else
    context.out << printable(subject_of(record::from_answer<api::DenialSubject>(*answer)) + outcome) << "\n";
  return kDone;
}

int deny(Context& context, const DenialOptions& options) {
  const auto body = request_of(options);
  if (!body) return report(context, body.error());
  return print_answer(
      context, context.coordinator.post("/v1/certificates/deny", *body),
      " is denied, and so are certificates that were renewed with it; open connections are closed");
}

int allow(Context& context, const DenialOptions& options) {
  if (options.serial.empty() == options.node.empty())
    return report(context, Error(ErrorCode::kInvalidArgument,
                                 "Name a certificate with --serial, or a node with --node"));
  const Json body = options.node.empty() ? Json{{"serial", options.serial}} : Json{{"node", options.node}};
  return print_answer(context, context.coordinator.post("/v1/certificates/allow", body), " is allowed again");
}

std::string view_denied(const std::vector<api::DeniedCertificate>& list, const Layout& layout) {
  Table table({{"SERIAL"}, {"OF"}, {"ENDS"}, {"DENIED"}, {"REASON", {.rank = 1, .min_width = 10}}});
  for (const api::DeniedCertificate& entry : list)
    table.add({entry.serial.value_or("-"), entry.of, entry.ends.value_or("-").substr(0, kTimeLength),
               entry.denied.substr(0, kTimeLength), entry.reason});
  return table.empty() ? "No certificate is denied\n" : table.text(layout);
}

int list_denied(Context& context) {
  auto answer = context.coordinator.get("/v1/certificates/denied");
  if (!answer) return report(context, answer.error());
  if (context.json)
    context.print(*answer);
  else
    context.out << view_denied(record::list_from_answer<api::DeniedCertificate>(*answer), context.layout())
                << std::flush;
  return kDone;
}

}  // namespace

void add_denial_commands(CommandTree& tree) {
  const auto options = std::make_shared<DenialOptions>();
  Command cluster = *tree.app().find_subcommand("cluster");
  Command denial = tree.add(
      cluster, "deny", "Deny a certificate before it expires, for example after its key was lost or copied",
      [options](Context& c) { return deny(c, *options); });
  denial.add_option("file", options->file, "File with the certificate in PEM");
  denial.add_option("--serial", options->serial, "Serial number of the certificate, if the file is lost")
      .called("HEX");
  denial
      .add_option(
          "--node", options->node,
          "Deny all certificates of this node, even unknown ones; the node must join again with a token")
      .called("NODE");
  denial.add_option("--reason", options->reason, "The reason, which `cluster denied` and the events show")
      .called("TEXT");
  denial.add_example("gpumigrate cluster deny on-call/client.pem --reason 'laptop stolen'",
                     "Deny a stolen certificate and close its open connections");
  denial.set_footer(
      "`openssl x509 -noout -serial -in FILE` shows a serial number. An unreachable node learns of the "
      "denial when it reconnects.");
  tree.add(cluster, "denied", "List the certificates that were denied before they expired",
           [](Context& c) { return list_denied(c); });
  Command allowance =
      tree.add(cluster, "allow", "Allow a certificate or a node that `cluster deny` has denied",
               [options](Context& c) { return allow(c, *options); });
  allowance.add_option("--serial", options->serial, "The serial number that `cluster denied` shows")
      .called("HEX");
  allowance.add_option("--node", options->node, "Name of the denied node").called("NODE");
}

}  // namespace ckpt::cli
